// What AVX2 does in its own way, of elements_amd64.h.

#define VN 8
#define L0 X0
#define L1 X1
#define L2 X2
#define L3 X3
#define L4 X4
#define L5 X5
#define L6 X6
#define L7 X7

#define WIDEN_F64(i, base, reg, low, tmp, tmplow) \
	VCVTPD2PSY (i*8*VN)(base)(AX*8), low; \
	VCVTPD2PSY (i*8*VN+32)(base)(AX*8), tmplow; \
	VINSERTF128 $1, tmplow, reg, reg

#define NARROW_BF16(i, reg, low, tmp, tmplow) \
	ROUND_BF16(reg, tmp); \
	VPSRLD $16, reg, reg; \
	VPACKUSDW reg, reg, reg; \
	VPERMQ $8, reg, reg; \
	VMOVUPS low, (i*2*VN)(DI)(AX*2)

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

// AVX2 has no conversion of int64. One by one: what the processor cannot convert
// comes back as the lowest int64, which is right unless the product is positive.
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
