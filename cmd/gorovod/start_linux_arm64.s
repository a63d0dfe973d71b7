#include "go_asm.h"
#include "textflag.h"

// gorovod_entry writes the refusal and exits with 1 if the limit on the address space is too low. Otherwise it notes
// whether stdout is closed, and jumps to the runtime's own entry, with the stack as the kernel has made it.
TEXT gorovod_entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUB  $16, RSP // a struct rlimit: the soft limit, then the hard limit
	MOVD $163, R8 // getrlimit
	MOVD $9, R0   // RLIMIT_AS
	MOVD RSP, R1
	SVC
	MOVD 0(RSP), R2 // all ones where there is no limit
	ADD  $16, RSP
	CBNZ R0, start
	MOVD $const_wanted, R3
	CMP  R3, R2
	BHS  start
	MOVD $64, R8 // write
	MOVD $2, R0  // stderr
	MOVD ·refusal+0(SB), R1
	MOVD ·refusal+8(SB), R2
	SVC
	MOVD $94, R8 // exit_group
	MOVD $1, R0
	SVC

start:
	MOVD $25, R8 // fcntl
	MOVD $1, R0  // stdout
	MOVD $1, R1  // F_GETFD
	SVC
	CMP  $0, R0
	BGE  run
	MOVD $1, R1
	MOVB R1, ·noStdout(SB)

run:
	JMP _rt0_arm64_linux(SB)
