# From UEFI's long mode to the PVH entry: 32-bit protected mode without paging. Lies below
# 4 GiB, where it may be executed; writes to nothing but the stack.
# In: rsi = start info, rdx = entry.
    .text
    .balign 16
    .code64
    .globl enter, enter_end
enter:
    cli
    cld
    mov ebx, esi
    mov ebp, edx
    lea rax, [rip + enter_gdt]
    sub rsp, 16
    mov word ptr [rsp + 6], 23
    mov [rsp + 8], rax
    lgdt [rsp + 6]
    mov rax, cr4
    and rax, ~((1 << 17) | (1 << 23))   # PCID and CET end before paging does
    mov cr4, rax
    lea rax, [rip + enter_compatible]
    push 8
    push rax
    retfq
    .code32
enter_compatible:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov fs, eax
    mov gs, eax
    mov eax, cr0
    and eax, 0x7fffffff
    mov cr0, eax                        # no paging
    mov ecx, 0xc0000080                 # EFER: no long mode
    xor eax, eax
    xor edx, edx
    wrmsr
    mov cr4, eax                        # nor its extensions, five levels of tables among them
    jmp ebp
    .balign 8
enter_gdt:
    .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
enter_end:
    .code64
