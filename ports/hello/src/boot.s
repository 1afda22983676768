# From PVH (32 bits, no paging, ebx: the start info) to `kernel` in 64 bits, with the first GiB mapped to itself.

    .section .note.pvh, "a", @note      # Xen's elfnote.h, type 18: the entry
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
    movl $0x83, %eax                    # 512 pages of 2 MiB: present, writable, large
    movl $directory, %edi
1:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    cmpl $directory + 4096, %edi
    jne 1b
    movl $directory + 3, pointers
    movl $pointers + 3, root
    movl $root, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $(1 << 5), %eax                 # PAE
    movl %eax, %cr4
    movl $0xc0000080, %ecx              # EFER: long mode
    rdmsr
    orl $(1 << 8), %eax
    wrmsr
    movl %cr0, %eax
    orl $((1 << 31) | (1 << 16) | 1), %eax  # paging, write protection
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $2f

    .code64
2:  movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $stack_end, %esp
    movl %ebx, %edi
    xorl %ebp, %ebp
    call kernel

    .section .rodata.gdt, "a"
    .balign 8
gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff     # none, 64-bit code, data
gdt_pointer:
    .word gdt_pointer - gdt - 1
    .long gdt

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .global root
root:      .skip 4096
pointers:  .skip 4096
directory: .skip 4096
    .skip 65536
stack_end:
