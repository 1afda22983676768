// From the loader's entry point to Rust, on the first CPU and on the others.
//
// The first CPU arrives by Linux's boot protocol: x0 holds the address of the device tree, no
// translation, at EL2 or EL1. Or it arrives from the UEFI loader, at the second instruction: x0 holds
// the address of PVH's start info, on firmware's translation. The others arrive by PSCI in the first
// state, x0 holding what `cpu::Starter` gave: their area. All go on at EL1, on page tables that are
// part of the file.

// Of the engine's pages, 4 KiB unless a feature says 16 or 64: a table is a page, and an entry of the last level but one
// covers a block.
    .set page_shift, {page_shift}
    .set page_bytes, 1 << page_shift
    .set entries, page_bytes / 8
    .set block_shift, 2 * page_shift - 3

// What TCR_EL1 says of tables of these: 48 bits of addresses, tables cached, shared; no upper half.
    .if page_shift == 14
    .set pages, 0x803510 | 2 << 14
    .elseif page_shift == 16
    .set pages, 0x803510 | 1 << 14
    .else
    .set pages, 0x803510
    .endif

// The first CPU: what was handed over to x20, the counter's ticks to x21, the image's address to x0, and how far that is
// from where it is linked to x22, with the flags of that.
    .macro arrive
    isb
    mrs x21, cntvct_el0
    mov x20, x0
    mrs x1, CurrentEL
    cmp x1, #8
    b.ne 8f
    mrs x21, cntpct_el0             // at EL2 the other has an offset, until it is cleared
8:
    adrp x0, image_start
    ldr x1, =image_linked
    subs x22, x0, x1
    .endm

// ---- The header of Linux's Image: the file begins with it.
    .section .text.entry, "ax"
    .global image_entry
image_entry:
    b first_cpu
    .if page_shift == 12
    b uefi_cpu                      // for our loader alone
    .else
    b stop
    .endif
    .quad 0                         // bytes from a border of 2 MiB to the file
    .quad image_bytes               // with memory that the file does not hold
    .quad page_shift - 10           // little endian, the size of pages, as low as possible
    .if page_shift == 12
    .ascii "FL-UEFI\x01"           // for our loader: the hand-over that is read, as in `wire`
    .else
    .quad 0                         // our loader refuses it
    .endif
    .quad image_start               // and the address at which nothing has to be moved
    .quad 0
    .ascii "ARM\x64"
    .long 0

// ---- The first CPU.
first_cpu:
    arrive
    b.eq enter
    lsr x23, x0, #30                // in one of the three GiB that are memory, at a border of 2 MiB
    sub x1, x23, #1
    cmp x1, #2
    b.hi stop
    tst x0, #0x1fffff
    b.ne stop
    bl relocate

    // The page of the image among the first page tables: that of the place it is linked at becomes
    // an ordinary one.
    adrp x4, boot_low
    .if page_shift == 12
    adrp x3, boot_middle
    ldr x5, [x3, #16]               // an ordinary one of 1 GiB, without its address
    bic x5, x5, #(3 << 30)
    orr x6, x5, #(1 << 30)
    str x6, [x3, #8]
    add x6, x4, #3
    str x6, [x3, x23, lsl #3]
    orr x5, x5, x23, lsl #30
    mov x6, x4
    mov x7, #512
1:  str x5, [x6], #8
    add x5, x5, #0x200000
    subs x7, x7, #1
    b.ne 1b
    adrp x5, boot_image
    add x5, x5, #3
    ubfx x6, x0, #21, #9
    str x5, [x4, x6, lsl #3]
    .else
    adrp x1, image_end              // a block is in one table
    sub x1, x1, #1
    eor x1, x1, x0
    lsr x1, x1, #block_shift
    cbnz x1, stop
    ldr x5, [x4, #((3 << 30) >> block_shift) * 8]
    bic x5, x5, #(3 << 30)
    orr x5, x5, #(1 << 30)
    str x5, [x4, #((1 << 30) >> block_shift) * 8]
    adrp x5, boot_image
    add x6, x5, #3
    lsr x7, x0, #block_shift
    str x6, [x4, x7, lsl #3]
    lsl x6, x7, #block_shift        // its pages begin where the block does
    add x6, x6, #0x703
    mov x7, #entries
1:  str x6, [x5], #8
    add x6, x6, #page_bytes
    subs x7, x7, #1
    b.ne 1b
    .endif

    // Nothing of what was written is in the caches, but what was there before may be.
    adrp x1, image_end
    mrs x2, ctr_el0
    ubfx x2, x2, #16, #4
    mov x3, #4
    lsl x3, x3, x2
1:  dc ivac, x0
    add x0, x0, x3
    cmp x0, x1
    b.lo 1b
    dsb sy

enter:
    bl enter_el1
    adrp x1, boot_root
    ldr x2, =pages
    .if page_shift > 12
    // A processor without pages of this size says so, on a table of its own.
    adrp x23, first_cpu_main
    add x23, x23, :lo12:first_cpu_main
    mrs x3, id_aa64mmfr0_el1
    .if page_shift == 14
    ubfx x3, x3, #20, #4            // of 16 KiB: none where this is 0
    cbnz x3, 1f
    .else
    sbfx x3, x3, #24, #4            // of 64 KiB: none where this is negative
    tbz x3, #63, 1f
    .endif
    adrp x23, without_pages
    add x23, x23, :lo12:without_pages
    adrp x1, words_root
    add x1, x1, :lo12:words_root
    ldr x2, =0x803520               // 32 bits, pages of 4 KiB
1:
    .endif
    bl translate
    adrp x1, boot_stack_end
    add x1, x1, :lo12:boot_stack_end
    mov sp, x1
    adrp x1, fault_stack_end
    add x1, x1, :lo12:fault_stack_end
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
    .if page_shift > 12
    br x23
    .else
    b first_cpu_main
    .endif

    .if page_shift == 12
// ---- The first CPU, from the UEFI loader.
uefi_cpu:
    msr daifset, #15
    msr spsel, #1
    arrive
    b.eq 1f
    bl relocate
1:
    adrp x1, boot_stack_end
    add x1, x1, :lo12:boot_stack_end
    mov sp, x1
    mov x29, xzr
    mov x0, x20
    bl map_by_uefi

    // Firmware's translation ends. From here on to ours memory is only read, for instructions and the values
    // beside them, past the caches: the loader has cleaned them out of the caches (to the point of coherency).
    ldr x1, =0x30d00800             // bits that are always one, no translation
    dsb sy
    mrs x2, CurrentEL
    cmp x2, #8
    b.ne 1f
    ldr x1, =0x30c50830             // the same of EL2
    msr sctlr_el2, x1
    isb
    b enter
1:  msr sctlr_el1, x1
    isb
    b enter
    .endif

// ---- Adds x22 to the image's addresses. The list has addresses of words, each with up to 63 bits
// after it that say which of the next words are ones, too.
relocate:
    adrp x1, relr_start
    add x1, x1, :lo12:relr_start
    adrp x2, relr_end
    add x2, x2, :lo12:relr_end
1:  cmp x1, x2
    b.hs 5f
    ldr x3, [x1], #8
    tbnz x3, #0, 2f
    add x4, x3, x22
    ldr x5, [x4]
    add x5, x5, x22
    str x5, [x4], #8
    b 1b
2:  mov x6, x4
3:  lsr x3, x3, #1
    cbz x3, 4f
    tbz x3, #0, 6f
    ldr x5, [x6]
    add x5, x5, x22
    str x5, [x6]
6:  add x6, x6, #8
    b 3b
4:  add x4, x4, #(63 * 8)
    b 1b
5:  dsb sy
    ret

// ---- Another CPU.
    .global other_cpu
other_cpu:
    mov x20, x0
    bl enter_el1
    adrp x1, boot_root
    ldr x2, =pages
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
    mov x1, #(1 << 31)              // EL1 is AArch64; EL2 has no tables of two halves (E2H)
    mrs x2, s3_0_c0_c7_4            // id_aa64mmfr4_el1: without E2H0 the bit must be set
    tbz x2, #27, 2f
    orr x1, x1, #(1 << 34)
2:  msr hcr_el2, x1
    isb                             // what the registers below are depends on it
    mrs x1, hcr_el2
    mov x2, #3                      // its counter and timer are not trapped
    mov x3, #0x33ff                 // nor are vector registers
    tbz x1, #34, 2f
    mov x2, #(3 << 10)              // some processors always have E2H, and then other places for both
    mov x3, #(3 << 20)
2:  msr cnthctl_el2, x2
    msr cntvoff_el2, xzr
    msr cptr_el2, x3

    // What else may trap EL1 is unknown after a reset; where these are, firmware lets EL2 write them.
    msr vttbr_el2, xzr
    mrs x1, mdcr_el2
    and x1, x1, #0x1f               // how many event counters EL1 has (HPMN)
    msr mdcr_el2, x1
    mrs x1, id_aa64mmfr0_el1
    ubfx x1, x1, #56, #4            // fine-grained traps (FGT)
    cbz x1, 2f
    msr s3_4_c1_c1_4, xzr           // hfgrtr_el2, hfgwtr_el2, hfgitr_el2
    msr s3_4_c1_c1_5, xzr
    msr s3_4_c1_c1_6, xzr
    msr s3_4_c3_c1_4, xzr           // hdfgrtr_el2, hdfgwtr_el2
    msr s3_4_c3_c1_5, xzr
2:  mrs x1, id_aa64mmfr1_el1
    ubfx x1, x1, #40, #4
    cbz x1, 2f
    msr s3_4_c1_c2_2, xzr           // hcrx_el2
2:  adrp x1, el2_vectors            // a call to it is answered
    add x1, x1, :lo12:el2_vectors
    msr vbar_el2, x1
    mrs x1, midr_el1                // what EL1 reads as its own ids
    msr vpidr_el2, x1
    mrs x1, mpidr_el1
    msr vmpidr_el2, x1
    mrs x2, hcr_el2
    ldr x1, =0x30d00800             // EL1: bits that are always one, no translation
    tbnz x2, #34, 2f
    msr sctlr_el1, x1
    b 3f
2:  msr s3_5_c1_c0_0, x1            // sctlr_el12: with E2H the other name is EL2's own
3:  mov x1, #0x3c5                  // to EL1 with its own stack pointer, all masked
    msr spsr_el2, x1
    msr elr_el2, x30
    isb
    eret
1:  msr spsel, #1                   // whatever a loader at EL1 left
    ldr x1, =0x30d00800
    msr sctlr_el1, x1
    isb
    ret

// ---- What is left at EL2: where tables name HVC for calls to firmware, which is not there, each is
// not supported.
    .balign 2048
el2_vectors:
    .skip 0x400
    msr tpidr_el2, x1               // from EL1, synchronous
    mrs x1, esr_el2
    lsr x1, x1, #26
    cmp x1, #0x16                   // HVC
    mrs x1, tpidr_el2
2:  b.ne 2b
    mov x0, #-1
    eret

// ---- Translation by the root in x1, with x2 for TCR_EL1; caches, vector registers, vectors.
translate:
    msr ttbr0_el1, x1
    mov x1, #(3 << 20)
    msr cpacr_el1, x1
    mov x1, #0xff                   // type 0: memory, write-back; type 1: registers of devices
    msr mair_el1, x1
    mrs x1, id_aa64mmfr0_el1        // as many bits of addresses as there are, 48 at most
    and x1, x1, #15
    mov x3, #5
    cmp x1, x3
    csel x1, x1, x3, lo
    orr x2, x2, x1, lsl #32
    msr tcr_el1, x2
    adrp x1, vectors
    add x1, x1, :lo12:vectors
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

// ---- The first 4 GiB: devices in the first, memory in the others; from the UEFI loader as firmware's
// map says (`first_map`). The block of the image is in small pages from the start, all executable
// until they are protected: a large page in use must not become smaller ones.
    .section .data.tables, "aw"
    .balign page_bytes
    .global boot_root, boot_middle, boot_low, boot_image
    .if page_shift == 12
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
    .quad image_start + 0x703 + (page << 12)
    .set page, page + 1
    .endr
    .else
boot_root:
    .if page_shift == 14
    .quad boot_middle + 3
    .fill entries - 1, 8, 0
boot_middle:
    .endif
    .quad boot_low + 3
    .fill entries - 1, 8, 0
boot_low:
    .set block, 0
    .rept (1 << 30) >> block_shift
    .quad 0x0060000000000405 + (block << block_shift)
    .set block, block + 1
    .endr
    .quad boot_image + 3
    .set block, block + 1
    .rept ((3 << 30) >> block_shift) - 1
    .quad 0x0060000000000701 + (block << block_shift)
    .set block, block + 1
    .endr
    .fill entries - block, 8, 0
boot_image:
    .set page, 0
    .rept entries
    .quad 0x40000703 + (page << page_shift)
    .set page, page + 1
    .endr
words_root:
    .quad 0x0060000000000405
    .quad 0x0000000040000701
    .quad 0x0000000080000701
    .quad 0x00000000c0000701
    .endif

    .section .noinit, "aw", @nobits
    .balign page_bytes
    .global boot_stack_guard
boot_stack_guard:
    .skip page_bytes
    .skip 131072
boot_stack_end:
    .skip 16384
fault_stack_end:
    .skip 16                        // `Own::first_registers`
