// An abort of a load as a CPU reports it: as if it had found no page for the load below.
// x0: x0 to x30 before, of which x0 is the address of the load. x1: space for them after the load, whose
// result is in x1.

    .section .text
    .global stale_fault
stale_fault:
    sub sp, sp, #112
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    str x1, [sp, #96]
    adr x2, 1f
    msr elr_el1, x2
    mov x2, #0x3c5                  // from EL1, all masked
    msr spsr_el1, x2
    ldr x2, =0x96000006             // an abort of data, not mapped at level 2
    msr esr_el1, x2
    ldr x2, [x0]
    msr far_el1, x2
    .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 0
    ldr x\n, [x0, #8*\n]
    .endr
    b vectors + 0x200
1:  ldr x1, [x0]
    str x30, [sp, #104]
    ldr x30, [sp, #96]
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    str x\n, [x30, #8*\n]
    .endr
    ldr x0, [sp, #104]
    str x0, [x30, #240]
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    add sp, sp, #112
    ret
