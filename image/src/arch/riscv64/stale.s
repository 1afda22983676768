# A load page fault as a hart reports it: as if it had refused the load below by what it has cached.
# a0: registers before, x1 to x31 with `fcsr` in the place of sp, then f0 to f31; a0 is the address of
# the load. a1: space for the registers after the load, whose result is in a1.

    .macro each_saved x_operation, f_operation
    .set slot, 0
    .irp register, ra, gp, tp, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11
    \x_operation \register, slot(sp)
    .set slot, slot + 8
    .endr
    .irp register, fs0, fs1, fs2, fs3, fs4, fs5, fs6, fs7, fs8, fs9, fs10, fs11
    \f_operation \register, slot(sp)
    .set slot, slot + 8
    .endr
    .endm

    .section .text
    .global stale_fault
stale_fault:
    addi sp, sp, -240
    each_saved sd, fsd
    sd a1, 216(sp)
    la t0, 1f
    csrw sepc, t0
    li t0, 13
    csrw scause, t0
    ld t0, 72(a0)
    csrw stval, t0
    li t0, 0x20                     # interrupts were off
    csrc sstatus, t0
    li t0, 0x100                    # in S-mode
    csrs sstatus, t0
    ld t0, 8(a0)
    fscsr t0
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    fld f\n, 248+8*\n(a0)
    .endr
    .irp n, 1, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 10
    ld x\n, 8*\n-8(a0)
    .endr
    j traps
1:  ld a1, 0(a0)
    sd t6, 224(sp)
    ld t6, 216(sp)
    .irp n, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
    sd x\n, 8*\n-8(t6)
    .endr
    ld t0, 224(sp)
    sd t0, 240(t6)
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    fsd f\n, 248+8*\n(t6)
    .endr
    frcsr t0
    sd t0, 8(t6)
    fscsr zero
    each_saved ld, fld
    addi sp, sp, 240
    ret
