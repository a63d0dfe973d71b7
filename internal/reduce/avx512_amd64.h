// What AVX-512 does in its own way: see avx2_amd64.h.

#undef CANON_PS
#undef CANON_PD
#define CANON_PS(reg, tmp) VCMPPS $3, reg, reg, K1; VMOVAPS V14, K1, reg
#define CANON_PD(reg, tmp) VCMPPD $3, reg, reg, K1; VMOVAPD V14, K1, reg

#undef CONSTANTS_BF16
#define CONSTANTS_BF16 \
	VPTERNLOGD $0xff, V10, V10, V10; \
	VPSRLD $31, V10, V11; \
	VPSRLD $17, V10, V12; \
	VPSLLD $16, V10, V10

#undef ROUND_BF16
#define ROUND_BF16(reg, tmp) \
	VPSRLD $16, reg, tmp; \
	VPANDD V11, tmp, tmp; \
	VPADDD V12, reg, reg; \
	VPADDD tmp, reg, reg

#undef MUL_8
#define MUL_8(src, acc, tmp) \
	VPMULLW src, acc, tmp; \
	VPSLLW $8, tmp, tmp; \
	VPSRLW $8, tmp, tmp; \
	VPSRLW $8, src, src; \
	VPSRLW $8, acc, acc; \
	VPSLLW $8, acc, acc; \
	VPMULLW src, acc, acc; \
	VPORQ tmp, acc, acc

#undef MUL_64
#undef MIN_I64
#undef MAX_I64
#define MUL_64(src, acc, tmp) VPMULLQ src, acc, acc
#define MIN_I64(src, acc, tmp) VPMINSQ src, acc, acc
#define MAX_I64(src, acc, tmp) VPMAXSQ src, acc, acc

// Loads fetch the lines that come FETCHED bytes later: what a processor fetches of itself ends with
// each page, and looks ahead by too few lines where each takes some instructions.
#define FETCHED 2048
#define FETCH2 PREFETCHT0 FETCHED(R8); PREFETCHT0 (FETCHED+64)(R8)
#define FETCH4 FETCH2; PREFETCHT0 (FETCHED+128)(R8); PREFETCHT0 (FETCHED+192)(R8)

#undef LOAD4
#define LOAD4(a, b, c, d) \
	FETCH4; \
	VMOVUPS (0*WIDTH)(R8), a; \
	VMOVUPS (1*WIDTH)(R8), b; \
	VMOVUPS (2*WIDTH)(R8), c; \
	VMOVUPS (3*WIDTH)(R8), d

#undef LOAD4_F16
#define LOAD4_F16(a, b, c, d) \
	FETCH2; \
	VCVTPH2PS (0*WIDTH/2)(R8), a; \
	VCVTPH2PS (1*WIDTH/2)(R8), b; \
	VCVTPH2PS (2*WIDTH/2)(R8), c; \
	VCVTPH2PS (3*WIDTH/2)(R8), d

#undef LOAD4_BF16
#define LOAD4_BF16(a, b, c, d) \
	FETCH2; \
	VMOVUPS (0*WIDTH)(R8), b; \
	VMOVUPS (1*WIDTH)(R8), d; \
	VPSLLD $16, b, a; \
	VPSLLD $16, d, c; \
	VANDPS V10, b, b; \
	VANDPS V10, d, d
