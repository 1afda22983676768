# From the loader's entry point to Rust, on the first hart and on the others.
#
# The first hart arrives from SBI: a0 holds its id, a1 the address of the device tree, S-mode, no
# translation. The others arrive by SBI's hart state management in the same state, a1 holding
# what `cpu::Starter` gave: their area. All go on on page tables that are part of the file.

    .option arch, +zicsr

# ---- The first hart.
    .section .text.entry, "ax"
    .global image_entry
image_entry:
    rdtime s2
    mv s1, a1
    la t0, boot_hart
    sd a0, 0(t0)
    la t0, fault_stack_end
    csrw sscratch, t0
    call connect_tables
    call translate
    mv tp, zero
    la sp, boot_stack_end
    mv s0, zero
    li a0, 0x10                     # markers, as soon as traps are handled
    call semihosting_character
    li a0, 0x11
    call semihosting_character
    mv a0, s1
    mv a1, s2
    mv ra, zero
    tail first_cpu_main

# ---- Another hart.
    .global other_cpu
other_cpu:
    mv s1, a1
    ld sp, 8(s1)                    # Area::stack_end
    addi t0, sp, -2048              # until `cpu::enter` faults have the rest of the stack
    csrw sscratch, t0
    call translate
    mv s0, zero
    mv a0, s1
    mv ra, zero
    tail other_cpu_main

# ---- Each table's first entry points to the next smaller one: entries hold addresses shifted.
connect_tables:
    la t0, boot_tables_512g
    la t1, boot_tables_1g
    srli t1, t1, 2
    ori t1, t1, 1
    sd t1, 0(t0)
    la t1, boot_tables_256t
    srli t0, t0, 2
    ori t0, t0, 1
    sd t0, 0(t1)
    ret

# ---- Translation with as many levels as the processor has: 5, 4 or 3.
translate:
    csrw sie, zero
    li t0, 0x2000                   # vector registers are off, floating point is on
    csrs sstatus, t0
    la t0, traps
    csrw stvec, t0
    la t0, boot_modes
1:  ld t1, 0(t0)
    beqz t1, stop
    ld t2, 8(t0)
    ld t3, 16(t0)
    addi t0, t0, 24
    srli t4, t2, 12
    or t4, t4, t1
    sfence.vma
    csrw satp, t4                   # no effect where the mode is not there
    sfence.vma
    csrr t5, satp
    bne t5, t4, 1b
    la t0, boot_root
    sd t2, 0(t0)
    sd t3, 8(t0)
    ret
stop:
    wfi
    j stop

# ---- Modes of translation, the one with the most levels first: for `satp`, the root, the bits below
# those that index it. A test takes some away from the file (lab/tests/it/boot_processors.rs).
    .section .rodata.boot, "a"
    .balign 8
boot_modes:
    .quad 10 << 60, boot_tables_256t, 48
    .quad 9 << 60, boot_tables_512g, 39
    .quad 8 << 60, boot_tables_1g, 30
    .quad 0

# ---- The first 4 GiB in pages of 1 GiB: readable, writable; executable is only the GiB of the
# image, until it is protected.
    .section .data.tables, "aw"
    .balign 4096
boot_tables_256t:
    .fill 512, 8, 0
boot_tables_512g:
    .fill 512, 8, 0
boot_tables_1g:
    .quad 0x000000c7
    .quad 0x100000c7
    .quad 0x200000cf
    .quad 0x300000c7
    .fill 508, 8, 0

    .section .data.boot, "aw"
    .balign 8
    .global boot_hart, boot_root
boot_hart:
    .quad 0
boot_root:
    .quad 0, 0

    .section .noinit, "aw", @nobits
    .balign 4096
    .global boot_stack_guard
boot_stack_guard:
    .skip 4096
    .skip 65536
boot_stack_end:
    .skip 16384
fault_stack_end:
    .skip 16                        # `Own::first_registers`
