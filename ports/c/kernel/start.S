// From the loader's entry point to C, on the first CPU and on the others.
//
// The first CPU arrives by PVH: 32-bit protected mode without paging, ebx holds the physical
// address of the start info. The others arrive in real mode, on a page below 1 MiB that
// `trampoline` was copied to. All meet in `enter_long_mode`; paging maps addresses to themselves.

#define GIB_MAPPED 8
#define STACK_BYTES 16384
#define MOST_CPUS 4

// ---- The note with the entry point for loaders (Xen's public elfnote.h, type 18).
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad start

    .text
    .code32
    .global start
start:
    cli
    cld
    movl %ebx, start_info
    // Pages of 2 MiB: present, writable; those of the interrupt controllers not cached.
    movl $page_directories, %edi
    movl $0x83, %eax
    xorl %edx, %edx
    movl $(GIB_MAPPED * 512), %ecx
1:  movl %eax, (%edi)
    movl %edx, 4(%edi)
    addl $8, %edi
    addl $0x200000, %eax
    adcl $0, %edx
    loop 1b
    orl $0x18, page_directories + (0xfec00000 >> 21) * 8
    orl $0x18, page_directories + (0xfee00000 >> 21) * 8
    movl $page_directories + 3, %eax
    movl $directory_pointers, %edi
    movl $GIB_MAPPED, %ecx
2:  movl %eax, (%edi)
    addl $8, %edi
    addl $4096, %eax
    loop 2b
    movl $directory_pointers + 3, page_map
    lgdt gdt_pointer

// ---- In: flat 32-bit segments, the GDT of this file, and paging tables that are complete.
enter_long_mode:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %cr4, %eax
    orl $(1 << 5), %eax                 // PAE
    movl %eax, %cr4
    movl $page_map, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx              // EFER
    rdmsr
    orl $(1 << 8), %eax                 // LME
    wrmsr
    movl %cr0, %eax
    andl $~((1 << 29) | (1 << 30)), %eax    // caches on
    orl $((1 << 31) | (1 << 16) | 1), %eax  // paging, write protection
    movl %eax, %cr0
    ljmp $0x18, $long_mode

// ---- Each CPU takes the next number, and the stack of that number.
    .code64
long_mode:
    movl $1, %edi
    lock xaddl %edi, cpus_started(%rip)
    cmpl $MOST_CPUS, %edi
    jae 3f
    movl %edi, %eax
    incl %eax
    imull $STACK_BYTES, %eax
    leaq stacks(%rip), %rsp
    addq %rax, %rsp
    xorl %ebp, %ebp
    movl start_info(%rip), %esi
    call kernel_main
3:  cli
    hlt
    jmp 3b

// ---- Copied below 1 MiB; runs there in real mode with cs = its own segment.
    .section .rodata.trampoline, "a"
    .code16
    .global trampoline, trampoline_end
trampoline:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    lgdtl gdt_pointer_copy - trampoline
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    ljmpl $0x8, $enter_long_mode
    .balign 4
gdt_pointer_copy:
    .word gdt_end - gdt - 1
    .long gdt
trampoline_end:

// ---- 32-bit code, data, 64-bit code.
    .section .rodata.gdt, "a"
    .balign 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00af9b000000ffff
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt

    .bss
    .balign 4096
page_map:           .skip 4096
directory_pointers: .skip 4096
page_directories:   .skip GIB_MAPPED * 4096
stacks:             .skip STACK_BYTES * MOST_CPUS
    .global cpus_started
cpus_started:       .skip 4
start_info:         .skip 4

    .section .note.GNU-stack, "", @progbits
