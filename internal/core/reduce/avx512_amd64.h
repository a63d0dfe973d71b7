// The operations of avx2_amd64.h, for AVX-512.

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

#undef MUL_64
#undef MIN_I64
#undef MAX_I64
#define MUL_64(src, acc, tmp) VPMULLQ src, acc, acc
#define MIN_I64(src, acc, tmp) VPMINSQ src, acc, acc
#define MAX_I64(src, acc, tmp) VPMAXSQ src, acc, acc

// A processor's own prefetching stops at the end of each page, and is too few lines ahead where each line
// takes some instructions.
#undef FETCH2
#undef FETCH4
#define FETCHED 2048
#define FETCH2 PREFETCHT0 FETCHED(R8); PREFETCHT0 (FETCHED+64)(R8)
#define FETCH4 FETCH2; PREFETCHT0 (FETCHED+128)(R8); PREFETCHT0 (FETCHED+192)(R8)
