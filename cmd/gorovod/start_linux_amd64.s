#include "go_asm.h"
#include "textflag.h"

// gorovod_entry writes the refusal and exits with 1 if the limit on the address space is too low. Otherwise it notes
// whether stdout is closed, and jumps to the runtime's own entry, with the stack as the kernel has made it.
TEXT gorovod_entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUBQ $16, SP // a struct rlimit: the soft limit, then the hard limit
	MOVQ $97, AX // getrlimit
	MOVQ $9, DI  // RLIMIT_AS
	MOVQ SP, SI
	SYSCALL
	MOVQ 0(SP), CX // all ones where there is no limit
	ADDQ $16, SP
	TESTQ AX, AX
	JNE   start
	MOVQ $const_wanted, DX
	CMPQ CX, DX
	JCC  start
	MOVQ $1, AX // write
	MOVQ $2, DI // stderr
	MOVQ ·refusal+0(SB), SI
	MOVQ ·refusal+8(SB), DX
	SYSCALL
	MOVQ $231, AX // exit_group
	MOVQ $1, DI
	SYSCALL

start:
	MOVQ $72, AX // fcntl
	MOVQ $1, DI  // stdout
	MOVQ $1, SI  // F_GETFD
	SYSCALL
	TESTQ AX, AX
	JGE   run
	MOVB $1, ·noStdout(SB)

run:
	JMP _rt0_amd64_linux(SB)
