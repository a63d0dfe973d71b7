// What AVX-512 does in its own way, of elements_amd64.h.

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

#undef WIDEN_F64
#define WIDEN_F64(i, base, reg, low, tmp, tmplow) \
	VCVTPD2PS (i*8*VN)(base)(AX*8), low; \
	VCVTPD2PS (i*8*VN+64)(base)(AX*8), tmplow; \
	VINSERTF64X4 $1, tmplow, reg, reg

#undef NARROW_BF16
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

// What is too large comes back as the lowest int64, whose complement is the highest.
// V14 is 2⁶³ here.
#define NARROW_I64(i, reg, low, tmp, tmplow) \
	VCMPPD $13, V14, reg, K1; \
	VCVTTPD2QQ reg, reg; \
	VPTERNLOGQ $0x55, reg, reg, K1, reg; \
	VMOVUPS reg, (64*i)(DI)(AX*8)
