// What AVX2 does in its own way: see vectors_amd64.h.

#define CANON_PS(reg, tmp) VCMPPS $3, reg, reg, tmp; VBLENDVPS tmp, V14, reg, reg
#define CANON_PD(reg, tmp) VCMPPD $3, reg, reg, tmp; VBLENDVPD tmp, V14, reg, reg

// FETCH2 and FETCH4 fetch two or four lines that are to be loaded later.
#define FETCH2
#define FETCH4

// V10 masks the upper halves of lanes; V11 is 1 and V12 0x7fff in each lane.
#define CONSTANTS_BF16 \
	VPCMPEQD V10, V10, V10; \
	VPSRLD $31, V10, V11; \
	VPSRLD $17, V10, V12; \
	VPSLLD $16, V10, V10

// To nearest even, in integers: add 0x7fff and the lowest bit that stays. The result
// is the upper half. No NaN but the package's comes here, which this keeps.
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
