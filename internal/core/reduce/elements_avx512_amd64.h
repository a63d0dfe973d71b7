// The operations of elements_avx2_amd64.h, for AVX-512.

#undef VN
#define VN 16
#undef L0
#define L0 Y0
#undef L1
#define L1 Y1
#undef L2
#define L2 Y2
#undef L3
#define L3 Y3
#undef L4
#define L4 Y4
#undef L5
#define L5 Y5
#undef L6
#define L6 Y6
#undef L7
#define L7 Y7

#undef CAST_32
#define CAST_32(WIDEN, CANON, NARROW) \
	CAST_VECTOR(0, WIDEN, CANON, NARROW); \
	CAST_VECTOR(1, WIDEN, CANON, NARROW)

#undef WIDEN_F64
#define WIDEN_F64(i, base, reg, low, tmp, tmplow) \
	VCVTPD2PS (i*8*VN)(base)(AX*8), low; \
	VCVTPD2PS (i*8*VN+64)(base)(AX*8), tmplow; \
	VINSERTF64X4 $1, tmplow, reg, reg

#define NARROW_BF16(i, reg, low, tmp, tmplow) \
	ROUND_BF16(reg, tmp); \
	VPSRLD $16, reg, reg; \
	VPMOVDW reg, (i*2*VN)(DI)(AX*2)

#undef NARROW_F64
#define NARROW_F64(i, reg, low, tmp, tmplow) \
	VCVTPS2PD low, tmp; \
	VMOVUPS tmp, (i*8*VN)(DI)(AX*8); \
	VEXTRACTF64X4 $1, reg, low; \
	VCVTPS2PD low, reg; \
	VMOVUPS reg, (i*8*VN+64)(DI)(AX*8)

// Integers, eight at a time.

#undef WIDEN_U8
#define WIDEN_U8(i, reg, low, tmp, tmplow) VPMOVZXBD (8*i)(R8)(AX*1), low; VCVTDQ2PD low, reg
#undef WIDEN_I8
#define WIDEN_I8(i, reg, low, tmp, tmplow) VPMOVSXBD (8*i)(R8)(AX*1), low; VCVTDQ2PD low, reg
#undef WIDEN_U16
#define WIDEN_U16(i, reg, low, tmp, tmplow) VPMOVZXWD (16*i)(R8)(AX*2), low; VCVTDQ2PD low, reg
#undef WIDEN_I16
#define WIDEN_I16(i, reg, low, tmp, tmplow) VPMOVSXWD (16*i)(R8)(AX*2), low; VCVTDQ2PD low, reg
#undef WIDEN_I32
#define WIDEN_I32(i, reg, low, tmp, tmplow) VCVTDQ2PD (32*i)(R8)(AX*4), reg
#define WIDEN_I64(i, reg, low, tmp, tmplow) VCVTQQ2PD (64*i)(R8)(AX*8), reg

#undef NARROW_U8
#define NARROW_U8(i, reg, low, tmp, tmplow) CLAMP(reg); VCVTTPD2DQ reg, low; VPMOVDB low, (8*i)(DI)(AX*1)
#undef NARROW_I8
#define NARROW_I8(i, reg, low, tmp, tmplow) CLAMP(reg); VCVTTPD2DQ reg, low; VPMOVDB low, (8*i)(DI)(AX*1)
#undef NARROW_U16
#define NARROW_U16(i, reg, low, tmp, tmplow) CLAMP(reg); VCVTTPD2DQ reg, low; VPMOVDW low, (16*i)(DI)(AX*2)
#undef NARROW_I16
#define NARROW_I16(i, reg, low, tmp, tmplow) CLAMP(reg); VCVTTPD2DQ reg, low; VPMOVDW low, (16*i)(DI)(AX*2)
#undef NARROW_I32
#define NARROW_I32(i, reg, low, tmp, tmplow) CLAMP(reg); VCVTTPD2DQ reg, low; VMOVUPS low, (32*i)(DI)(AX*4)

// The processor turns what is too large into the lowest int64, whose complement is the highest.
// V14 is 2⁶³ here.
#define NARROW_I64(i, reg, low, tmp, tmplow) \
	VCMPPD $13, V14, reg, K1; \
	VCVTTPD2QQ reg, reg; \
	VPTERNLOGQ $0x55, reg, reg, K1, reg; \
	VMOVUPS reg, (64*i)(DI)(AX*8)

#undef LOAD_4I16
#undef ADD_4I16
#undef WIDEN_4I16
#undef WIDEN_4U16
#undef TRUNCATE4
#undef NARROW_I16S
#undef NARROW_U16S
#define LOAD_8I16(i, x) VMOVDQU (16*i)(R8)(AX*2), x
#define ADD_8I16(i, x) VPADDW (16*i)(R8)(AX*2), x, x
#define WIDEN_8I16(x, low, reg) VPMOVSXWD x, low; VCVTDQ2PD low, reg
#define WIDEN_8U16(x, low, reg) VPMOVZXWD x, low; VCVTDQ2PD low, reg
#define TRUNCATE8 VCVTTPD2DQ V0, Y0; VCVTTPD2DQ V1, Y1; VCVTTPD2DQ V2, Y2; VCVTTPD2DQ V3, Y3
// Packing works within each half of a vector, so the middle quarters change places afterwards.
#define NARROW_I16S \
	TRUNCATE8; \
	VPACKSSDW Y1, Y0, Y0; VPACKSSDW Y3, Y2, Y2; \
	VPERMQ $0xd8, Y0, Y0; VPERMQ $0xd8, Y2, Y2; \
	VMOVDQU Y0, (DI)(AX*2); VMOVDQU Y2, 32(DI)(AX*2)
#define NARROW_U16S \
	TRUNCATE8; \
	VPACKUSDW Y1, Y0, Y0; VPACKUSDW Y3, Y2, Y2; \
	VPERMQ $0xd8, Y0, Y0; VPERMQ $0xd8, Y2, Y2; \
	VMOVDQU Y0, (DI)(AX*2); VMOVDQU Y2, 32(DI)(AX*2)

#undef LOAD_4I32
#undef ADD_4I32
#undef WIDEN_4I32
#undef NARROW_I32S
#define LOAD_8I32(i, x) VMOVDQU (32*i)(R8)(AX*4), x
#define ADD_8I32(i, x) VPADDD (32*i)(R8)(AX*4), x, x
#define WIDEN_8I32(x, low, reg) VCVTDQ2PD x, reg
#define NARROW_I32S \
	TRUNCATE8; \
	VMOVDQU Y0, (DI)(AX*4); VMOVDQU Y1, 32(DI)(AX*4); VMOVDQU Y2, 64(DI)(AX*4); VMOVDQU Y3, 96(DI)(AX*4)

// MEAN_I64 is MEAN of int64, one vector a turn. Four at once, which touch four lines of each
// source and then write four, take a tenth longer beyond the caches.
#define MEAN_I64 \
	JMP  test; \
loop: \
	MOVQ (SI), R8; \
	VMOVDQU64 (R8)(AX*8), Z0; \
	MOVQ $24, CX; \
	JMP  more; \
source: \
	MOVQ (SI)(CX*1), R8; \
	VPADDQ (R8)(AX*8), Z0, Z0; \
	ADDQ $24, CX; \
more: \
	CMPQ CX, BX; \
	JLT  source; \
	VCVTQQ2PD Z0, Z0; \
	SCALE_PD(V0); \
	VCVTTPD2QQ Z0, Z0; \
	VMOVDQU64 Z0, (DI)(AX*8); \
	ADDQ $8, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

// LOOK_UP sets each byte to what a table of 256 has for the sum of the sources. An
// instruction looks up in half of the table.
#define LOOK_UP \
	MOVQ job_table(R11), R8; \
	VMOVDQU64 (0*64)(R8), Z4; VMOVDQU64 (1*64)(R8), Z5; \
	VMOVDQU64 (2*64)(R8), Z6; VMOVDQU64 (3*64)(R8), Z7; \
	JMP  test; \
loop: \
	MOVQ (SI), R8; \
	VMOVDQU64 (R8)(AX*1), Z0; \
	MOVQ $24, CX; \
	JMP  more; \
source: \
	MOVQ (SI)(CX*1), R8; \
	VPADDB (R8)(AX*1), Z0, Z0; \
	ADDQ $24, CX; \
more: \
	CMPQ CX, BX; \
	JLT  source; \
	VPMOVB2M Z0, K1; \
	VMOVDQA64 Z0, Z1; \
	VPERMI2B Z5, Z4, Z0; \
	VPERMI2B Z7, Z6, Z1; \
	VMOVDQU8 Z1, K1, Z0; \
	VMOVDQU64 Z0, (DI)(AX*1); \
	ADDQ $64, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop

#undef CANON_PD
#define CANON_PD(reg, tmp) VCMPPD $3, reg, reg, K1; VMOVAPD V14, K1, reg

#undef HALVE
#define HALVE(reg, low) VCVTPD2PS reg, low
#undef CANON_LOW
#define CANON_LOW(low, tmp) VCMPPS $3, low, low, K1; VMOVAPS Y14, K1, low

// HALVE_ODD rounds to odd: toward zero, with the last bit set if anything was lost. So
// rounding the result to 16 bits gives the same as rounding once.
#define HALVE_ODD(reg, low, tmp) \
	VMOVAPS reg, tmp; \
	VCVTPD2PS.RZ_SAE reg, low; \
	VCVTPS2PD low, Z9; \
	VCMPPD $12, tmp, Z9, K1; \
	VPORD Y11, low, K1, low

#define ROUND_F16(i, reg, low, tmp, tmplow) \
	HALVE_ODD(reg, low, tmp); \
	CANON_LOW(low, tmplow); \
	VCVTPS2PH $0, low, (i*VN)(DI)(AX*2)

#define ROUND_BF16_HALF(i, reg, low, tmp, tmplow) \
	HALVE_ODD(reg, low, tmp); \
	CANON_LOW(low, tmplow); \
	VPSRLD $16, low, tmplow; \
	VPANDD Y11, tmplow, tmplow; \
	VPADDD Y12, low, low; \
	VPADDD tmplow, low, low; \
	VPSRLD $16, low, low; \
	VPMOVDW low, (i*VN)(DI)(AX*2)

#undef DOT
#define DOT(DOUBLE, STEP) \
	MOVQ (SI), R8; \
	MOVQ 24(SI), R10; \
	VMOVUPS (0*64)(DI), Z4; VMOVUPS (1*64)(DI), Z5; \
	VMOVUPS (2*64)(DI), Z6; VMOVUPS (3*64)(DI), Z7; \
	VMOVUPS (4*64)(DI), Z8; VMOVUPS (5*64)(DI), Z9; \
	JMP  test; \
loop: \
	STEP(DOUBLE, 0, V4, V6, V8); \
	STEP(DOUBLE, 1, V5, V7, V9); \
	ADDQ $16, AX; \
test: \
	CMPQ AX, DX; \
	JLT  loop; \
	VMOVUPS Z4, (0*64)(DI); VMOVUPS Z5, (1*64)(DI); \
	VMOVUPS Z6, (2*64)(DI); VMOVUPS Z7, (3*64)(DI); \
	VMOVUPS Z8, (4*64)(DI); VMOVUPS Z9, (5*64)(DI)
