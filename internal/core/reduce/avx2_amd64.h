// The operations of vectors_amd64.h that AVX2 and AVX-512 do in different ways, for AVX2.

#define CANON_PS(reg, tmp) VCMPPS $3, reg, reg, tmp; VBLENDVPS tmp, V14, reg, reg
#define CANON_PD(reg, tmp) VCMPPD $3, reg, reg, tmp; VBLENDVPD tmp, V14, reg, reg

// FETCH2 and FETCH4 prefetch two or four lines with AVX-512, and nothing here.
#define FETCH2
#define FETCH4

// V10 masks the upper halves of lanes; V11 is 1 and V12 0x7fff in each lane.
#define CONSTANTS_BF16 \
	VPCMPEQD V10, V10, V10; \
	VPSRLD $31, V10, V11; \
	VPSRLD $17, V10, V12; \
	VPSLLD $16, V10, V10

// ROUND_BF16 rounds to nearest even, in integers: it adds 0x7fff and the lowest bit that
// stays. The result is the upper half. The only NaN that comes here is the package's, which
// this keeps.
#define ROUND_BF16(reg, tmp) \
	VPSRLD $16, reg, tmp; \
	VPAND  V11, tmp, tmp; \
	VPADDD V12, reg, reg; \
	VPADDD tmp, reg, reg

#define STORE_BF16(reg, mem, tmp) \
	ROUND_BF16(reg, tmp); \
	VPSRLD $16, reg, reg; \
	VPACKUSDW reg, reg, reg; \
	VPERMQ $8, reg, reg; \
	VEXTRACTI128 $0, reg, mem

#define MIN_I64(src, acc, tmp) VPCMPGTQ src, acc, tmp; VBLENDVPD tmp, src, acc, acc
#define MAX_I64(src, acc, tmp) VPCMPGTQ acc, src, tmp; VBLENDVPD tmp, src, acc, acc
