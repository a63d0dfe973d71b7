#include "textflag.h"

// func prefetch(addresses *lines, n, last int)
TEXT ·prefetch(SB), NOSPLIT, $0-24
	MOVD addresses+0(FP), R0
	MOVD n+8(FP), R1
	MOVD last+16(FP), R2
	ADD  R1<<3, R0, R5
	B    more

next:
	MOVD.P 8(R0), R3
	ADD  R2, R3, R4
	PRFM (R4), PLDL1KEEP

line:
	PRFM (R3), PLDL1KEEP
	ADD  $64, R3
	CMP  R4, R3
	BLS  line

more:
	CMP R5, R0
	BLO next
	RET
