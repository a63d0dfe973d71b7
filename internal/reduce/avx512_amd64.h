// What AVX-512 does in its own way, of what the 16-bit floats need: see avx2_amd64.h.

#undef CANON_PS
#define CANON_PS(reg, tmp) VCMPPS $3, reg, reg, K1; VMOVAPS V14, K1, reg

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
