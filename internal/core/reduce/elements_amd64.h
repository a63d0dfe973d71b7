// The loops of the kernels whose ranges count elements, so that sources and
// destination may have elements of different sizes. A range is a whole number of
// turns. Portable Go does the rest of an array.
//
//	DI  dst      AX  the next element      V15 scale
//	R8  source   DX  the end               V14 canon, or an integer's upper limit
//	R9  not 0: scale                       V13 an integer's lower limit
//	V12…V10 constants of bfloat16          V4…V9 scratch
//
// WIDEN_*(i, base, reg, low, tmp, tmplow) makes float32 of the vector number i from AX on in
// the array at base; NARROW_*(i, reg, low, tmp, tmplow) stores such a vector at DI. low and
// tmplow are the low halves of reg and tmp. Both may change tmp, and NARROW_* reg. VN is the
// number of float32 in a vector.

// CAST converts 32 elements a turn, by TURN: CAST_32 or PAIRS_BF16. Each vector, or pair, is
// stored before the next is loaded: if the data is not in the caches, loading four vectors and
// then storing four takes a quarter longer. READ and WRITE prefetch the lines that are read
// and written AHEAD elements later, while so many are left. A processor's own prefetching stops
// at the end of each page, and is too few lines ahead where a line takes many instructions.
#define CAST(TURN, READ, WRITE) \
	MOVQ (SI), R8; \
	LEAQ -AHEAD(DX), R10; \
	JMP  testfar; \
far: \
	READ; \
	WRITE; \
	TURN; \
	ADDQ $32, AX; \
testfar: \
	CMPQ AX, R10; \
	JLT  far; \
	JMP  test; \
loop: \
	TURN; \
	ADDQ $32, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

#define CAST_VECTOR(i, WIDEN, CANON, NARROW) \
	WIDEN(i, R8, V0, L0, V4, L4); \
	CANON(V0, V8); \
	NARROW(i, V0, L0, V4, L4)

#define AHEAD 512

// READ_* prefetch the lines of 32 elements of so many bits of the source, WRITE_* those of
// dst, for writing.
#define READ_16 PREFETCHT0 (2*AHEAD)(R8)(AX*2)
#define READ_32 PREFETCHT0 (4*AHEAD)(R8)(AX*4); PREFETCHT0 (4*AHEAD+64)(R8)(AX*4)
#define READ_64 \
	PREFETCHT0 (8*AHEAD)(R8)(AX*8); PREFETCHT0 (8*AHEAD+64)(R8)(AX*8); \
	PREFETCHT0 (8*AHEAD+128)(R8)(AX*8); PREFETCHT0 (8*AHEAD+192)(R8)(AX*8)

#define WRITE_16 PREFETCHW(0x47, 2*AHEAD)
#define WRITE_32 PREFETCHW(0x87, 4*AHEAD); PREFETCHW(0x87, 4*AHEAD+64)
#define WRITE_64 \
	PREFETCHW(0xc7, 8*AHEAD); PREFETCHW(0xc7, 8*AHEAD+64); \
	PREFETCHW(0xc7, 8*AHEAD+128); PREFETCHW(0xc7, 8*AHEAD+192)

// PREFETCHW is the instruction of this name, which the assembler does not know: of disp(DI)(AX*2)
// if sib is 0x47, (AX*4) if 0x87, (AX*8) if 0xc7. Processors that do not have it take it for a NOP.
#define PREFETCHW(sib, disp) BYTE $0x0f; BYTE $0x0d; BYTE $0x8c; BYTE $sib; LONG $(disp)

// ADD_WIDENED adds float32 of the second source to what the first holds.
#define ADD_WIDENED(WIDEN) \
	MOVQ (SI), R8; \
	MOVQ 24(SI), R10; \
	JMP  test; \
loop: \
	WIDEN(0, R8, V0, L0, V4, L4); \
	WIDEN(1, R8, V1, L1, V5, L5); \
	WIDEN(2, R8, V2, L2, V6, L6); \
	WIDEN(3, R8, V3, L3, V7, L7); \
	VADDPS (0*4*VN)(R10)(AX*4), V0, V0; \
	VADDPS (1*4*VN)(R10)(AX*4), V1, V1; \
	VADDPS (2*4*VN)(R10)(AX*4), V2, V2; \
	VADDPS (3*4*VN)(R10)(AX*4), V3, V3; \
	TESTQ R9, R9; \
	JEQ  canon; \
	SCALE_PS(V0); \
	SCALE_PS(V1); \
	SCALE_PS(V2); \
	SCALE_PS(V3); \
canon: \
	CANON_PS(V0, V8); \
	CANON_PS(V1, V9); \
	CANON_PS(V2, V8); \
	CANON_PS(V3, V9); \
	NARROW_F32(0, V0, L0, V4, L4); \
	NARROW_F32(1, V1, L1, V5, L5); \
	NARROW_F32(2, V2, L2, V6, L6); \
	NARROW_F32(3, V3, L3, V7, L7); \
	ADDQ $(4*VN), AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// ADD_DOUBLED is the same for float64, whose vectors hold half of VN.
#define ADD_DOUBLED(DOUBLE) \
	MOVQ (SI), R8; \
	MOVQ 24(SI), R10; \
	JMP  test; \
loop: \
	DOUBLE(0, R8, V0, L0); \
	DOUBLE(1, R8, V1, L1); \
	VADDPD (0*4*VN)(R10)(AX*8), V0, V0; \
	VADDPD (1*4*VN)(R10)(AX*8), V1, V1; \
	TESTQ R9, R9; \
	JEQ  canon; \
	SCALE_PD(V0); \
	SCALE_PD(V1); \
canon: \
	ROUND_F64(0, V0, L0, V4, L4); \
	ROUND_F64(1, V1, L1, V5, L5); \
	ADDQ $VN, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// SCALE_INTEGERS multiplies in float64, whose vectors hold half of VN, saturates
// and truncates toward zero. The factor is finite, so that no product is a NaN.
#define SCALE_INTEGERS(WIDEN, NARROW) \
	MOVQ (SI), R8; \
	JMP  test; \
loop: \
	WIDEN(0, V0, L0, V4, L4); \
	SCALE_PD(V0); \
	NARROW(0, V0, L0, V4, L4); \
	WIDEN(1, V1, L1, V5, L5); \
	SCALE_PD(V1); \
	NARROW(1, V1, L1, V5, L5); \
	ADDQ $VN, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// MEAN adds the sources' integers and multiplies the sums in float64. No
// product is a NaN, or outside an int32. I0…I3 are V0…V3 in the width that has as many
// integers as a vector has float64.
#define MEAN(LOADI, ADDI, WIDEN, NARROW, I0, I1, I2, I3) \
	JMP  test; \
loop: \
	MOVQ (SI), R8; \
	LOADI(0, I0); \
	LOADI(1, I1); \
	LOADI(2, I2); \
	LOADI(3, I3); \
	MOVQ $24, CX; \
	JMP  more; \
source: \
	MOVQ (SI)(CX*1), R8; \
	ADDI(0, I0); \
	ADDI(1, I1); \
	ADDI(2, I2); \
	ADDI(3, I3); \
	ADDQ $24, CX; \
more: \
	CMPQ CX, BX; \
	JLT  source; \
	WIDEN(I0, L0, V0); \
	WIDEN(I1, L1, V1); \
	WIDEN(I2, L2, V2); \
	WIDEN(I3, L3, V3); \
	SCALE_PD(V0); \
	SCALE_PD(V1); \
	SCALE_PD(V2); \
	SCALE_PD(V3); \
	NARROW; \
	ADDQ $(2*VN), AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// CLAMP keeps products that are no NaN inside the limits.
#define CLAMP(reg) VMAXPD V13, reg, reg; VMINPD V14, reg, reg

#define WIDEN_F16(i, base, reg, low, tmp, tmplow) VCVTPH2PS (i*2*VN)(base)(AX*2), reg
#define WIDEN_BF16(i, base, reg, low, tmp, tmplow) VPMOVZXWD (i*2*VN)(base)(AX*2), reg; VPSLLD $16, reg, reg
#define WIDEN_F32(i, base, reg, low, tmp, tmplow) VMOVUPS (i*4*VN)(base)(AX*4), reg

#define NARROW_F16(i, reg, low, tmp, tmplow) VCVTPS2PH $0, reg, (i*2*VN)(DI)(AX*2)
#define NARROW_F32(i, reg, low, tmp, tmplow) VMOVUPS reg, (i*4*VN)(DI)(AX*4)

// For the moves, which read and write as many bytes as casts do. They may write any bytes.
#define LOAD_16(i, base, reg, low, tmp, tmplow) VMOVUPS (i*2*VN)(base)(AX*2), low
#define LOAD_64(i, base, reg, low, tmp, tmplow) VMOVUPS (i*8*VN)(base)(AX*8), reg; VMOVUPS (i*8*VN+4*VN)(base)(AX*8), tmp
#define STORE_16(i, reg, low, tmp, tmplow) VMOVUPS low, (i*2*VN)(DI)(AX*2)
#define STORE_64(i, reg, low, tmp, tmplow) VMOVUPS reg, (i*8*VN)(DI)(AX*8); VMOVUPS reg, (i*8*VN+4*VN)(DI)(AX*8)

// DOUBLE_*(i, base, reg, low) makes float64 of the half vector number i from AX on.
#define DOUBLE_F16(i, base, reg, low) VCVTPH2PS (i*VN)(base)(AX*2), low; VCVTPS2PD low, reg
#define DOUBLE_BF16(i, base, reg, low) VPMOVZXWD (i*VN)(base)(AX*2), low; VPSLLD $16, low, low; VCVTPS2PD low, reg
#define DOUBLE_F32(i, base, reg, low) VCVTPS2PD (i*2*VN)(base)(AX*4), reg
#define DOUBLE_F64(i, base, reg, low) VMOVUPS (i*4*VN)(base)(AX*8), reg

// DOT_STEP adds the products of half vector i to the sums XY, XX and YY. FUSED_STEP does
// so in one operation, which is the same where products are exact: not of float64.
#define FUSED_STEP(DOUBLE, i, XY, XX, YY) \
	DOUBLE(i, R8, V0, L0); \
	DOUBLE(i, R10, V1, L1); \
	VFMADD231PD V0, V1, XY; \
	VFMADD231PD V0, V0, XX; \
	VFMADD231PD V1, V1, YY

#define DOT_STEP(DOUBLE, i, XY, XX, YY) \
	DOUBLE(i, R8, V0, L0); \
	DOUBLE(i, R10, V1, L1); \
	VMULPD V0, V1, V2; \
	VADDPD V2, XY, XY; \
	VMULPD V0, V0, V0; \
	VADDPD V0, XX, XX; \
	VMULPD V1, V1, V1; \
	VADDPD V1, YY, YY

// BLEND sets the first source to V15 times itself and V13 times the second.
#define BLEND_STEP(DOUBLE, ROUND, i, a, alow, b, blow) \
	DOUBLE(i, R8, a, alow); \
	DOUBLE(i, R10, b, blow); \
	VMULPD V15, a, a; \
	VMULPD V13, b, b; \
	VADDPD b, a, a; \
	ROUND(i, a, alow, b, blow)

#define BLEND(DOUBLE, ROUND) \
	MOVQ (SI), R8; \
	MOVQ 24(SI), R10; \
	JMP  test; \
loop: \
	BLEND_STEP(DOUBLE, ROUND, 0, V0, L0, V4, L4); \
	BLEND_STEP(DOUBLE, ROUND, 1, V1, L1, V5, L5); \
	BLEND_STEP(DOUBLE, ROUND, 2, V2, L2, V6, L6); \
	BLEND_STEP(DOUBLE, ROUND, 3, V3, L3, V7, L7); \
	ADDQ $(2*VN), AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// ROUND_* store float64 in the element's type, with V14 for each NaN.
#define ROUND_F64(i, reg, low, tmp, tmplow) CANON_PD(reg, V8); VMOVUPS reg, (i*4*VN)(DI)(AX*8)
#define ROUND_F32(i, reg, low, tmp, tmplow) HALVE(reg, low); CANON_LOW(low, tmplow); VMOVUPS low, (i*2*VN)(DI)(AX*4)
