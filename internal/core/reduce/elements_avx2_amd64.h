// The operations of elements_amd64.h that AVX2 and AVX-512 do in different ways, for AVX2.

#define VN 8
#define L0 X0
#define L1 X1
#define L2 X2
#define L3 X3
#define L4 X4
#define L5 X5
#define L6 X6
#define L7 X7

#define CAST_32(WIDEN, CANON, NARROW) \
	CAST_VECTOR(0, WIDEN, CANON, NARROW); \
	CAST_VECTOR(1, WIDEN, CANON, NARROW); \
	CAST_VECTOR(2, WIDEN, CANON, NARROW); \
	CAST_VECTOR(3, WIDEN, CANON, NARROW)

#define WIDEN_F64(i, base, reg, low, tmp, tmplow) \
	VCVTPD2PSY (i*8*VN)(base)(AX*8), low; \
	VCVTPD2PSY (i*8*VN+32)(base)(AX*8), tmplow; \
	VINSERTF128 $1, tmplow, reg, reg

// PAIRS_BF16 is CAST_32 to bfloat16, of which two vectors make one.
#define PAIRS_BF16(WIDEN) \
	PAIR_BF16(0, 1, WIDEN); \
	PAIR_BF16(2, 3, WIDEN)

#define PAIR_BF16(i, next, WIDEN) \
	WIDEN(i, R8, V0, L0, V4, L4); \
	WIDEN(next, R8, V1, L1, V5, L5); \
	CANON_PS(V0, V8); \
	CANON_PS(V1, V9); \
	ROUND_BF16(V0, V8); \
	ROUND_BF16(V1, V9); \
	VPSRLD $16, V0, V0; \
	VPSRLD $16, V1, V1; \
	VPACKUSDW V1, V0, V0; \
	VPERMQ $0xd8, V0, V0; \
	VMOVUPS V0, (i*2*VN)(DI)(AX*2)

#define NARROW_F64(i, reg, low, tmp, tmplow) \
	VCVTPS2PD low, tmp; \
	VMOVUPS tmp, (i*8*VN)(DI)(AX*8); \
	VEXTRACTF128 $1, reg, low; \
	VCVTPS2PD low, reg; \
	VMOVUPS reg, (i*8*VN+32)(DI)(AX*8)

// Integers, four at a time.

#define WIDEN_U8(i, reg, low, tmp, tmplow) VPMOVZXBD (4*i)(R8)(AX*1), low; VCVTDQ2PD low, reg
#define WIDEN_I8(i, reg, low, tmp, tmplow) VPMOVSXBD (4*i)(R8)(AX*1), low; VCVTDQ2PD low, reg
#define WIDEN_U16(i, reg, low, tmp, tmplow) VPMOVZXWD (8*i)(R8)(AX*2), low; VCVTDQ2PD low, reg
#define WIDEN_I16(i, reg, low, tmp, tmplow) VPMOVSXWD (8*i)(R8)(AX*2), low; VCVTDQ2PD low, reg
#define WIDEN_I32(i, reg, low, tmp, tmplow) VCVTDQ2PD (16*i)(R8)(AX*4), reg

#define NARROW_U8(i, reg, low, tmp, tmplow) \
	CLAMP(reg); VCVTTPD2DQY reg, low; VPACKSSDW low, low, low; VPACKUSWB low, low, low; VMOVD low, (4*i)(DI)(AX*1)
#define NARROW_I8(i, reg, low, tmp, tmplow) \
	CLAMP(reg); VCVTTPD2DQY reg, low; VPACKSSDW low, low, low; VPACKSSWB low, low, low; VMOVD low, (4*i)(DI)(AX*1)
#define NARROW_U16(i, reg, low, tmp, tmplow) \
	CLAMP(reg); VCVTTPD2DQY reg, low; VPACKUSDW low, low, low; VMOVQ low, (8*i)(DI)(AX*2)
#define NARROW_I16(i, reg, low, tmp, tmplow) \
	CLAMP(reg); VCVTTPD2DQY reg, low; VPACKSSDW low, low, low; VMOVQ low, (8*i)(DI)(AX*2)
#define NARROW_I32(i, reg, low, tmp, tmplow) \
	CLAMP(reg); VCVTTPD2DQY reg, low; VMOVUPS low, (16*i)(DI)(AX*4)

#define LOAD_4I16(i, x) VMOVQ (8*i)(R8)(AX*2), x
#define ADD_4I16(i, x) VMOVQ (8*i)(R8)(AX*2), X8; VPADDW X8, x, x
#define WIDEN_4I16(x, low, reg) VPMOVSXWD x, x; VCVTDQ2PD x, reg
#define WIDEN_4U16(x, low, reg) VPMOVZXWD x, x; VCVTDQ2PD x, reg
#define TRUNCATE4 VCVTTPD2DQY V0, X0; VCVTTPD2DQY V1, X1; VCVTTPD2DQY V2, X2; VCVTTPD2DQY V3, X3
#define NARROW_I16S \
	TRUNCATE4; \
	VPACKSSDW X1, X0, X0; VPACKSSDW X3, X2, X2; \
	VMOVDQU X0, (DI)(AX*2); VMOVDQU X2, 16(DI)(AX*2)
#define NARROW_U16S \
	TRUNCATE4; \
	VPACKUSDW X1, X0, X0; VPACKUSDW X3, X2, X2; \
	VMOVDQU X0, (DI)(AX*2); VMOVDQU X2, 16(DI)(AX*2)

#define LOAD_4I32(i, x) VMOVDQU (16*i)(R8)(AX*4), x
#define ADD_4I32(i, x) VPADDD (16*i)(R8)(AX*4), x, x
#define WIDEN_4I32(x, low, reg) VCVTDQ2PD x, reg
#define NARROW_I32S \
	TRUNCATE4; \
	VMOVDQU X0, (DI)(AX*4); VMOVDQU X1, 16(DI)(AX*4); VMOVDQU X2, 32(DI)(AX*4); VMOVDQU X3, 48(DI)(AX*4)

// HALVE_I16 adds the sources' 16-bit integers and shifts the sums right by X13, four
// vectors a turn. To round toward zero, it first adds V14, the bits that the shift drops, to
// negative sums.
#define SHIFT_U16(reg, tmp) VPSRLW X13, reg, reg
#define SHIFT_I16(reg, tmp) VPSRAW $15, reg, tmp; VPAND Y14, tmp, tmp; VPADDW tmp, reg, reg; VPSRAW X13, reg, reg
#define HALVE_I16(SHIFT) \
	JMP  test; \
loop: \
	MOVQ (SI), R8; \
	VMOVDQU 0(R8)(AX*2), Y0; \
	VMOVDQU 32(R8)(AX*2), Y1; \
	VMOVDQU 64(R8)(AX*2), Y2; \
	VMOVDQU 96(R8)(AX*2), Y3; \
	MOVQ $24, CX; \
	JMP  more; \
source: \
	MOVQ (SI)(CX*1), R8; \
	VPADDW 0(R8)(AX*2), Y0, Y0; \
	VPADDW 32(R8)(AX*2), Y1, Y1; \
	VPADDW 64(R8)(AX*2), Y2, Y2; \
	VPADDW 96(R8)(AX*2), Y3, Y3; \
	ADDQ $24, CX; \
more: \
	CMPQ CX, BX; \
	JLT  source; \
	SHIFT(Y0, Y4); \
	SHIFT(Y1, Y5); \
	SHIFT(Y2, Y6); \
	SHIFT(Y3, Y7); \
	VMOVDQU Y0, 0(DI)(AX*2); \
	VMOVDQU Y1, 32(DI)(AX*2); \
	VMOVDQU Y2, 64(DI)(AX*2); \
	VMOVDQU Y3, 96(DI)(AX*2); \
	ADDQ $64, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// AVX2 has no conversion of int64, so this works on one element at a time. The processor
// turns what it cannot convert into the lowest int64, which is right unless the product is
// positive.
#define SCALE_EACH_I64 \
	MOVQ (SI), R8; \
	VXORPS X8, X8, X8; \
	MOVQ $0x7fffffffffffffff, R13; \
	JMP  test; \
loop: \
	VCVTSI2SDQ (R8)(AX*8), X8, X0; \
	VMULSD X15, X0, X0; \
	VCVTTSD2SIQ X0, R10; \
	LEAQ 1(R13), R9; \
	CMPQ R10, R9; \
	JNE  store; \
	VUCOMISD X8, X0; \
	JLS  store; \
	MOVQ R13, R10; \
store: \
	MOVQ R10, (DI)(AX*8); \
	ADDQ $1, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

#define HALVE(reg, low) VCVTPD2PSY reg, low
#define CANON_LOW(low, tmp) VCMPPS $3, low, low, tmp; VBLENDVPS tmp, X14, low, low

// DOT keeps 16 sums of each product.
#define DOT(DOUBLE, STEP) \
	MOVQ (SI), R8; \
	MOVQ 24(SI), R10; \
	VMOVUPS (0*32)(DI), Y4; VMOVUPS (1*32)(DI), Y5; VMOVUPS (2*32)(DI), Y6; VMOVUPS (3*32)(DI), Y7; \
	VMOVUPS (4*32)(DI), Y8; VMOVUPS (5*32)(DI), Y9; VMOVUPS (6*32)(DI), Y10; VMOVUPS (7*32)(DI), Y11; \
	VMOVUPS (8*32)(DI), Y12; VMOVUPS (9*32)(DI), Y13; VMOVUPS (10*32)(DI), Y14; VMOVUPS (11*32)(DI), Y15; \
	JMP  test; \
loop: \
	STEP(DOUBLE, 0, V4, V8, V12); \
	STEP(DOUBLE, 1, V5, V9, V13); \
	STEP(DOUBLE, 2, V6, V10, V14); \
	STEP(DOUBLE, 3, V7, V11, V15); \
	ADDQ $16, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop; \
	VMOVUPS Y4, (0*32)(DI); VMOVUPS Y5, (1*32)(DI); VMOVUPS Y6, (2*32)(DI); VMOVUPS Y7, (3*32)(DI); \
	VMOVUPS Y8, (4*32)(DI); VMOVUPS Y9, (5*32)(DI); VMOVUPS Y10, (6*32)(DI); VMOVUPS Y11, (7*32)(DI); \
	VMOVUPS Y12, (8*32)(DI); VMOVUPS Y13, (9*32)(DI); VMOVUPS Y14, (10*32)(DI); VMOVUPS Y15, (11*32)(DI)
