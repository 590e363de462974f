/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The VMM starts every vCPU here, already in 64-bit mode with its own stack:
 * rdi = vCPU index. Only the tables interrupts need are left to set.
 */
	.section .boot, "ax"
	.globl	_start
_start:
	lgdt	gdt_pointer(%rip)
	lidt	idt_pointer(%rip)
	call	guest_main
	mov	$0xff, %eax
	jmp	panic

/* An interrupt has done its work by ending HLT; who halted acknowledges it (timer.c). */
interrupt:
	iretq

	.altmacro
	.macro	exception vector
exception_\vector:
	mov	$\vector, %eax
	jmp	panic
	.endm
	.set	i, 0
	.rept	32
	exception %i
	.set	i, i + 1
	.endr

/* eax = reason; 0xf4 is PANIC_PORT of layout.h. */
panic:
	out	%eax, $0xf4
	hlt
	jmp	panic

	.section .rodata, "a"
	.balign	16
gdt:
	.quad	0
	.quad	0x00af9b000000ffff	/* 0x08: 64-bit code */
	.quad	0x00cf93000000ffff	/* 0x10: data */
gdt_pointer:
	.word	. - gdt - 1
	.quad	gdt

/* Interrupt gates. Handlers lie below 64 KiB (guest.ld asserts it): their upper address bits are 0. */
	.macro	gate handler
	.word	\handler
	.word	0x08
	.byte	0, 0x8e
	.word	0
	.long	0, 0
	.endm
	.macro	exception_gate vector
	gate	exception_\vector
	.endm

	.balign	16
idt:
	.set	i, 0
	.rept	32
	exception_gate %i
	.set	i, i + 1
	.endr
	.rept	16
	gate	interrupt		/* 0x20 timer .. 0x2f spurious */
	.endr
idt_pointer:
	.word	. - idt - 1
	.quad	idt

	.section .note.GNU-stack, "", @progbits
