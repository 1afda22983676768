# From the loader's entry point to Rust, on the first CPU and on the others.
#
# The first CPU arrives by PVH: 32-bit protected mode, no paging, ebx holds the
# physical address of the start info. The others arrive in real mode, on a page
# below 1 MiB that `trampoline` was copied to. All meet in `enter_long_mode`.
# `restart_image` brings the image back to what the loader loaded, and enters it again.

# ---- The note with the entry point for loaders (Xen's public elfnote.h, type 18).
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad pvh_entry

# ---- The first instructions of all.
    .section .text.entry, "ax"
    .code32
    .global pvh_entry
pvh_entry:
    rdtsc
    mov [entry_ticks], eax
    mov [entry_ticks + 4], edx
    mov al, 0x10
    out 0x80, al
    cli
    cld
    mov [start_info], ebx
    lgdt [boot_gdt_pointer]
    mov ebp, offset first_cpu
    jmp enter_long_mode

# ---- In: ebp = 64-bit code to go on with, flat 32-bit segments, the GDT of this file.
enter_long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov fs, eax                     # not null: that leaves the old base on some processors,
    mov gs, eax                     # and gs at zero identifies the first CPU
    # Is there a long mode, and can pages be without execution?
    mov eax, 0x80000001
    cpuid
    bt edx, 29
    jnc no_long_mode
    xor edi, edi
    bt edx, 20
    jnc 1f
    mov edi, 1 << 11                # EFER.NXE
1:  mov eax, cr4
    or eax, 1 << 5                  # PAE
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080             # EFER
    rdmsr
    or eax, 1 << 8                  # LME
    or eax, edi
    wrmsr
    mov eax, cr0
    and eax, ~((1 << 2) | (1 << 3) | (1 << 29) | (1 << 30))  # EM, TS, caches on
    or eax, (1 << 31) | (1 << 16) | (1 << 1) | 1             # paging, write protection, MP, PE
    mov cr0, eax
    ljmp 0x18, offset long_mode

no_long_mode:
    mov al, 0xf0
    out 0x80, al
    cld
    mov edx, 0x3f8                  # the log, then the events
    mov esi, offset no_long_mode_line
    mov ebx, 2
1:  lodsb
    test al, al
    jz 3f
    out dx, al
    jmp 1b
3:  mov edx, 0x2f8
    dec ebx
    jnz 1b
    mov eax, 0x2e
    out 0xf4, eax
2:  hlt
    jmp 2b

    .code64
long_mode:
    # ebp kept its value; its upper half is undefined in the change of mode.
    mov eax, ebp
    jmp rax

first_cpu:
    lea rsp, [rip + boot_stack_end]
    xor ebp, ebp
    mov al, 0x11
    out 0x80, al
    mov edi, [rip + start_info]
    mov rsi, [rip + entry_ticks]
    call first_cpu_main
    ud2

# ---- Another CPU: finds its own area by its APIC id, its stack in it.
other_cpu:
    xor eax, eax
    cpuid
    cmp eax, 0xb
    jb 1f
    mov eax, 0xb
    xor ecx, ecx
    cpuid
    test ebx, ebx                   # not implemented: no processors at this level
    jz 1f
    mov edi, edx
    jmp 2f
1:  mov eax, 1
    cpuid
    shr ebx, 24
    mov edi, ebx
2:  mov rsi, [rip + cpu_table]
    mov ecx, [rip + cpu_table_len]
3:  test ecx, ecx
    jz 5f
    mov rdx, [rsi]
    cmp [rdx], rdi                  # Area::id
    je 4f
    add rsi, 8
    dec ecx
    jmp 3b
4:  mov rsp, [rdx + 8]              # Area::stack_end
    mov rdi, rdx
    xor ebp, ebp
    call other_cpu_main
    ud2
5:  cli                             # a CPU that was not started here
    hlt
    jmp 5b

# ---- The end of this kernel: the image as it was loaded, then its entry, as a loader does it.
    .code64
    .global restart_image
restart_image:                      # rdi = nonce of the restart, in registers alone until the next kernel has it
    cli
    mov ebp, edi
    shr rdi, 32
    mov ebx, [rip + start_info]
    lgdt [rip + boot_gdt_pointer_64]
    rdtsc                           # from here on no kernel runs
    mov [rip + left_ticks], eax
    mov [rip + left_ticks + 4], edx
    push 0x8
    lea rax, [rip + leave_long_mode]
    push rax
    retfq

    .code32
leave_long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov eax, cr0
    and eax, ~(1 << 31)             # paging off: the tables are in what is overwritten
    mov cr0, eax
    mov ecx, 0xc0000080             # EFER
    xor eax, eax
    xor edx, edx
    wrmsr
    mov eax, 1 << 9                 # CR4.OSFXSR, for the 16-byte registers
    mov cr4, eax
    movd xmm6, ebp
    movd xmm7, edi
    mov esi, offset kept_data
    mov edi, offset data_start
    mov ecx, offset data_end
1:  movaps xmm0, [esi]
    movaps xmm1, [esi + 16]
    movaps xmm2, [esi + 32]
    movaps xmm3, [esi + 48]
    movaps [edi], xmm0
    movaps [edi + 16], xmm1
    movaps [edi + 32], xmm2
    movaps [edi + 48], xmm3
    add esi, 64
    add edi, 64
    cmp edi, ecx
    jb 1b
    xorps xmm0, xmm0
    mov edi, offset bss_start
    mov ecx, offset bss_end
2:  movaps [edi], xmm0
    movaps [edi + 16], xmm0
    movaps [edi + 32], xmm0
    movaps [edi + 48], xmm0
    add edi, 64
    cmp edi, ecx
    jb 2b
    movd [restart_nonce], xmm6
    movd [restart_nonce + 4], xmm7
    xor eax, eax
    mov cr4, eax
    inc dword ptr [restarts]
    jmp pvh_entry

# ---- Copied below 1 MiB; runs there in real mode with cs = its own segment.
    .section .rodata.trampoline, "a"
    .code16
    .global trampoline, trampoline_end
trampoline:
    jmp 1f
    .balign 4                       # at offset 4 of the page:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt
1:  cli
    cld
    mov ax, cs
    mov ds, ax
    lgdtd ds:[4]
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea                # far jump with a 32-bit offset
    .long trampoline_32
    .word 0x8
trampoline_end:

    .section .text.entry, "ax"
    .code32
trampoline_32:
    mov ebp, offset other_cpu
    jmp enter_long_mode

# ---- Segments until Rust loads its own: 32-bit code, data, 64-bit code.
    .section .rodata.boot_gdt, "a"
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00af9b000000ffff
boot_gdt_end:
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt
boot_gdt_pointer_64:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt

    .section .rodata.no_long_mode, "a"
no_long_mode_line:
    .asciz "error: this processor has no long mode: expected x86-64\r\n"
    .ascii "{{\"event\":\"failure\",\"text\":\"this processor has no long mode: expected x86-64\"}}\n"
    .asciz "{{\"event\":\"end\",\"outcome\":\"machine\"}}\n"

# ---- Results of the first instructions, and the first stack.
    .section .data.boot, "aw"
    .balign 8
entry_ticks:
    .quad 0
start_info:
    .quad 0
    .global restart_nonce
restart_nonce:                      # zero in the file: a loader's kernel has none
    .quad 0

# Page tables for the first 4 GiB in pages of 2 MiB, complete before the first
# instruction. 0xfec00000..0xff000000 holds interrupt controllers: not cached.
    .balign 4096
    .global boot_pml4, boot_pdpt, boot_pd
boot_pml4:
    .quad boot_pdpt + 3
    .fill 511, 8, 0
boot_pdpt:
    .quad boot_pd + 3, boot_pd + 0x1003, boot_pd + 0x2003, boot_pd + 0x3003
    .fill 508, 8, 0
boot_pd:
    .set page, 0
    .rept 2038
    .quad (page << 21) + 0x83       # present, writable, 2 MiB
    .set page, page + 1
    .endr
    .rept 2
    .quad (page << 21) + 0x9b       # and not cached
    .set page, page + 1
    .endr
    .rept 8
    .quad (page << 21) + 0x83
    .set page, page + 1
    .endr

# What a restart leaves: its last instruction in this kernel, and how many there were.
    .section .bss.kept, "aw", @nobits
    .balign 8
    .global left_ticks, restarts
left_ticks:
    .skip 8
restarts:
    .skip 8

    .section .bss.boot_stack, "aw", @nobits
    .balign 4096
    .global boot_stack_guard
boot_stack_guard:
    .skip 4096
    .skip 65536
    .global boot_stack_end
boot_stack_end:
