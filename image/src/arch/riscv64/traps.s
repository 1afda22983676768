# Every exception: registers on the hart's own stack for faults, then `exception_main`, which returns
# where the access has to be repeated. A semihosting call that nothing answers is an exception, too:
# it is skipped.

    .set frame_bytes, 528           # `Registers`
    .set area_shift, 16             # `AREA_ORDER`

# x1 to x31 but sp, t0 and t1 at 8 each, and of the floating-point registers those that a function need
# not keep.
    .macro each_register x_operation, f_operation
    .irp n, 1, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    \x_operation x\n, 8*\n(sp)
    .endr
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 28, 29, 30, 31
    \f_operation f\n, 272+8*\n(sp)
    .endr
    .endm

    .section .text
    .balign 4
    .global traps
traps:
    csrrw sp, sscratch, sp          # the stack for faults; the old one is kept
    sd t0, 0(sp)                    # above the stack: a frame there may be in use
    sd t1, 8(sp)
    csrr t0, sepc
    la t1, semihosting_call
    beq t0, t1, nothing_answers
    addi sp, sp, -frame_bytes
    each_register sd, fsd
    sd t0, 0(sp)                    # in the place of x0: where
    addi t1, sp, frame_bytes
    ld t0, 0(t1)
    sd t0, 40(sp)
    ld t0, 8(t1)
    sd t0, 48(sp)
    la t0, fault_stack_end          # `tp` may be what is wrong: the hart's area has the stack
    mv tp, zero
    beq t1, t0, 1f
    srli tp, t1, area_shift
    slli tp, tp, area_shift
1:
    csrrw t1, sscratch, t1          # a fault of the handler begins anew
    sd t1, 16(sp)
    csrr t1, sstatus
    sd t1, 256(sp)
    frcsr t1
    sd t1, 264(sp)
    mv a0, sp
    csrr a1, scause
    csrr a2, stval
    call exception_main
    ld t1, 264(sp)
    fscsr t1
    each_register ld, fld
    ld t0, 40(sp)
    ld t1, 48(sp)
    ld sp, 16(sp)
    sret

nothing_answers:
    addi t0, t0, 4
    csrw sepc, t0
    ld t0, 0(sp)
    ld t1, 8(sp)
    csrrw sp, sscratch, sp
    li a0, -1
    sret

# ---- A call to the host: operation in a0, parameter in a1; -1 where nothing answers. The three
# instructions are what the host looks for, in one page and none of them compressed.
    .option push
    .option norvc
    .balign 16
    .global semihosting
semihosting:
    slli x0, x0, 0x1f
semihosting_call:
    ebreak
    srai x0, x0, 7
    ret
    .option pop

# ---- The character in a0, to the host.
    .global semihosting_character
semihosting_character:
    addi sp, sp, -16
    sd ra, 8(sp)
    sb a0, 0(sp)
    mv a1, sp
    li a0, 3
    call semihosting
    ld ra, 8(sp)
    addi sp, sp, 16
    ret
