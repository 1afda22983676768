# Entries of exceptions 0..31 and of the two interrupts that are used. Every
# exception goes to `exception_main`, which returns from what is ignored.

    .section .text
    .code64

# 16 bytes each, so that the table of addresses is arithmetic. The processor
# pushes an error code for some; the others push a zero in its place.
    .balign 16
    .global exception_entries
exception_entries:
    .set vector, 0
    .rept 32
    .balign 16
    .if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    push 0
    .endif
    push vector
    jmp exception_common
    .set vector, vector + 1
    .endr

exception_common:
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    cld
    mov rdi, rsp
    mov rbp, rsp
    and rsp, -16
    call exception_main
    mov rsp, rbp
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    add rsp, 16                     # vector, error code
    iretq

# Wakes a CPU from `hlt`; its work is in its mailbox.
    .balign 16
    .global wake_entry
wake_entry:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    cld
    mov rdi, rsp
    push rbp
    mov rbp, rsp
    and rsp, -16
    call wake_main
    mov rsp, rbp
    pop rbp
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    iretq

# A spurious interrupt of the local APIC needs no acknowledgement.
    .balign 16
    .global spurious_entry
spurious_entry:
    iretq
