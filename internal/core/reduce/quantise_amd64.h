// Quantised blocks: see quantise.go. DX counts blocks of 32 numbers; DI is dst, R8 the first source.

// SCALES fills Y8 with the scale whose exponent is in CX.
#define SCALES \
	MOVL CX, R9; \
	SHLL $23, R9; \
	MOVL R9, X8; \
	VPBROADCASTD X8, Y8

// LARGEST makes AX the bits of the largest magnitude in Y0 to Y3. It uses Y4 to Y7.
#define LARGEST \
	VPAND Y0, Y15, Y4; \
	VPAND Y1, Y15, Y5; \
	VPAND Y2, Y15, Y6; \
	VPAND Y3, Y15, Y7; \
	VPMAXUD Y4, Y5, Y4; \
	VPMAXUD Y6, Y7, Y6; \
	VPMAXUD Y4, Y6, Y4; \
	VEXTRACTI128 $1, Y4, X5; \
	VPMAXUD X4, X5, X4; \
	VPSHUFD $0x4e, X4, X5; \
	VPMAXUD X4, X5, X4; \
	VPSHUFD $0xb1, X4, X5; \
	VPMAXUD X4, X5, X4; \
	MOVL X4, AX

// REST stores what SUM has beyond the integers in V times the scale in Y8.
#define REST(SUM, V, TO) \
	VCVTDQ2PS V, V; \
	VMULPS V, Y8, V; \
	VSUBPS V, SUM, V; \
	VMOVUPS V, TO

// VALUES loads 8 values times the scale in Y8.
#define VALUES(FROM, V) \
	VPMOVSXBD FROM, V; \
	VCVTDQ2PS V, V; \
	VMULPS V, Y8, V
