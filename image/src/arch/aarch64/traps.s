// Every exception: registers on the CPU's own stack for faults, then `exception_main`, which does
// not return. A semihosting call that nothing answers is one, too: it is skipped. So is a fault by a
// page that is there by now: the access is repeated.

    .section .text
    .balign 2048
    .global vectors
vectors:
    .set vector, 0
    .rept 16
    .balign 128
    msr tpidr_el0, x0
    mrs x0, tpidrro_el0
    stp x1, x2, [x0]                // above the stack: a frame there may be in use
    mov x1, #vector
    b exception_common
    .set vector, vector + 1
    .endr

exception_common:
    mrs x2, elr_el1
    adr x0, semihosting_call
    cmp x2, x0
    b.eq nothing_answers

    // Absence is not cached, but without FEAT_ETS2 an access may look for its page before the loads
    // that come before it, and so before another CPU has made the page appear. If it is mapped by
    // now, the access is repeated; if the page does not allow it, that is another fault.
    cmp x1, #4                      // synchronous, at this level
    b.ne report
    mrs x0, esr_el1
    lsr x2, x0, #26
    bic x2, x2, #4
    cmp x2, #0x21                   // an abort of an instruction or of data, at this level
    b.ne report
    and x2, x0, #0x3c
    cmp x2, #4                      // not mapped
    b.ne report
    mrs x2, far_el1
    at s1e1r, x2
    isb
    mrs x2, par_el1
    tbz x2, #0, repeat

report:
    mrs x2, elr_el1
    mrs x0, tpidrro_el0
    sub x0, x0, #288
    stp x3, x4, [x0, #24]
    ldp x3, x4, [x0, #288]
    stp x3, x4, [x0, #8]
    stp x5, x6, [x0, #40]
    stp x7, x8, [x0, #56]
    stp x9, x10, [x0, #72]
    stp x11, x12, [x0, #88]
    stp x13, x14, [x0, #104]
    stp x15, x16, [x0, #120]
    stp x17, x18, [x0, #136]
    stp x19, x20, [x0, #152]
    stp x21, x22, [x0, #168]
    stp x23, x24, [x0, #184]
    stp x25, x26, [x0, #200]
    stp x27, x28, [x0, #216]
    stp x29, x30, [x0, #232]
    mrs x3, tpidr_el0
    str x3, [x0]
    mov x4, sp
    mrs x5, spsr_el1
    stp x4, x2, [x0, #248]
    stp x5, x1, [x0, #264]
    mrs x1, esr_el1
    mrs x2, far_el1
    mov sp, x0
    b exception_main

repeat:
    mrs x0, tpidrro_el0
    ldp x1, x2, [x0]
    mrs x0, tpidr_el0
    eret

nothing_answers:
    add x2, x2, #4
    msr elr_el1, x2
    mrs x0, tpidrro_el0
    ldp x1, x2, [x0]
    mov x0, #-1
    eret

// ---- A call to the host: operation in x0, parameter in x1; -1 where nothing answers.
    .global semihosting
semihosting:
semihosting_call:
    hlt #0xf000
    ret

// ---- The character in w0, to the host.
    .global semihosting_character
semihosting_character:
    sub sp, sp, #16
    strb w0, [sp]
    mov x1, sp
    mov x0, #3
    mov x17, x30
    bl semihosting
    add sp, sp, #16
    br x17
