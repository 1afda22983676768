// From the loader's entry point to Rust, on the first CPU and on the others.
//
// The first CPU arrives by Linux's boot protocol: x0 holds the address of the device tree, no
// translation, at EL2 or EL1. The others arrive by PSCI in the same state, x0 holding what
// `cpu::Starter` gave: their area. All go on at EL1, on page tables that are part of the file.

// ---- The header of Linux's Image: the file begins with it.
    .section .text.entry, "ax"
    .global image_entry
image_entry:
    b first_cpu
    .long 0
    .quad 0                         // bytes from a border of 2 MiB to the file
    .quad image_bytes               // with memory that the file does not hold
    .quad 0b0010                    // little endian, pages of 4 KiB, as low as possible
    .quad 0, 0, 0
    .ascii "ARM\x64"
    .long 0

// ---- The first CPU.
first_cpu:
    isb
    mrs x21, cntvct_el0
    mov x20, x0
    mrs x1, CurrentEL
    cmp x1, #8
    b.ne 1f
    mrs x21, cntpct_el0             // at EL2 the other has an offset, until it is cleared
1:
    adr x0, image_entry             // linked at fixed addresses: elsewhere it cannot run
    ldr x1, =image_start
    cmp x0, x1
    b.ne stop
    bl enter_el1
    bl translate
    ldr x1, =boot_stack_end
    mov sp, x1
    ldr x1, =fault_stack_end
    msr tpidrro_el0, x1
    msr tpidr_el1, xzr
    mov x29, xzr
    mov x30, xzr
    mov x0, #0x10                   // markers, as soon as traps are handled
    bl semihosting_character
    mov x0, #0x11
    bl semihosting_character
    mov x0, x20
    mov x1, x21
    b first_cpu_main

// ---- Another CPU.
    .global other_cpu
other_cpu:
    mov x20, x0
    bl enter_el1
    bl translate
    ldr x1, [x20, #8]               // Area::stack_end
    mov sp, x1
    mov x29, xzr
    mov x30, xzr
    mov x0, x20
    b other_cpu_main

stop:
    wfi
    b stop

// ---- To EL1, interrupts masked; returns there.
enter_el1:
    msr daifset, #15
    mrs x1, CurrentEL
    cmp x1, #8
    b.ne 1f
    mov x1, #(1 << 31)              // EL1 is AArch64
    msr hcr_el2, x1
    isb                             // what the registers below are depends on it
    mov x1, #3                      // its counter and timer are not trapped
    msr cnthctl_el2, x1
    msr cntvoff_el2, xzr
    mov x1, #0x33ff                 // nor are vector registers
    msr cptr_el2, x1
    mrs x1, midr_el1                // what EL1 reads as its own ids
    msr vpidr_el2, x1
    mrs x1, mpidr_el1
    msr vmpidr_el2, x1
    ldr x1, =0x30d00800             // EL1: bits that are always one, no translation
    msr sctlr_el1, x1
    mov x1, #0x3c5                  // to EL1 with its own stack pointer, all masked
    msr spsr_el2, x1
    msr elr_el2, x30
    isb
    eret
1:  ret

// ---- Translation, caches, vector registers, vectors.
translate:
    mov x1, #(3 << 20)
    msr cpacr_el1, x1
    mov x1, #0xff                   // type 0: memory, write-back; type 1: registers of devices
    msr mair_el1, x1
    mrs x2, id_aa64mmfr0_el1        // as many bits of addresses as there are, 48 at most
    and x2, x2, #15
    mov x3, #5
    cmp x2, x3
    csel x2, x2, x3, lo
    ldr x1, =0x803510               // 48 bits, tables cached, shared, pages of 4 KiB; no upper half
    orr x1, x1, x2, lsl #32
    msr tcr_el1, x1
    ldr x1, =boot_root
    msr ttbr0_el1, x1
    ldr x1, =vectors
    msr vbar_el1, x1
    dsb ish
    tlbi vmalle1
    ic iallu
    dsb nsh
    isb
    mrs x1, sctlr_el1
    mov x2, #0x1005                 // translation, both caches
    orr x1, x1, x2
    bic x1, x1, #2                  // memory may be accessed at any address
    msr sctlr_el1, x1
    isb
    ret

// ---- The first 4 GiB: devices in the first, memory in the others. The 2 MiB of the image are in
// small pages from the start, all executable until they are protected: a large page in use must
// not become smaller ones.
    .section .data.tables, "aw"
    .balign 4096
    .global boot_root
boot_root:
    .quad boot_middle + 3
    .fill 511, 8, 0
boot_middle:
    .quad 0x0060000000000405
    .quad boot_low + 3
    .quad 0x0060000080000701
    .quad 0x00600000c0000701
    .fill 508, 8, 0
boot_low:
    .quad 0x0060000040000701
    .quad boot_image + 3
    .set page, 2
    .rept 510
    .quad 0x0060000040000701 + (page << 21)
    .set page, page + 1
    .endr
boot_image:
    .set page, 0
    .rept 512
    .quad 0x0000000040200703 + (page << 12)
    .set page, page + 1
    .endr

    .section .noinit, "aw", @nobits
    .balign 4096
    .global boot_stack_guard
boot_stack_guard:
    .skip 4096
    .skip 65536
boot_stack_end:
    .skip 16384
fault_stack_end:
    .skip 16                        // `Own::first_registers`
