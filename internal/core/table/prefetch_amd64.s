#include "textflag.h"

// func prefetch(addresses *lines, n, last int)
TEXT ·prefetch(SB), NOSPLIT, $0-24
	MOVQ addresses+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ last+16(FP), DX
	LEAQ (SI)(CX*8), DI
	JMP  more

next:
	MOVQ (SI), AX
	LEAQ (AX)(DX*1), BX
	PREFETCHT0 (BX)

line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	CMPQ AX, BX
	JLS  line
	ADDQ $8, SI

more:
	CMPQ SI, DI
	JCS  next
	RET
