// Operations on one vector, of which the kernels consist: see loops_amd64.h for
// what each does. Those here have the same form in AVX2 and AVX-512, where the
// registers V0…V15 are Y or Z, of WIDTH bytes.

#define NONE(reg)
#define NONE2(reg, tmp)

// Loads and stores.

#define LOAD(mem, reg) VMOVUPS mem, reg
#define STORE(reg, mem, tmp) VMOVUPS reg, mem

#define LOAD_F16(mem, reg) VCVTPH2PS mem, reg
#define STORE_F16(reg, mem, tmp) VCVTPS2PH $0, reg, mem

#define LOAD_BF16(mem, reg) VPMOVZXWD mem, reg; VPSLLD $16, reg, reg

#define LOAD4(a, b, c, d) \
	FETCH4; \
	VMOVUPS (0*WIDTH)(R8), a; \
	VMOVUPS (1*WIDTH)(R8), b; \
	VMOVUPS (2*WIDTH)(R8), c; \
	VMOVUPS (3*WIDTH)(R8), d

#define STORE4 \
	VMOVUPS V0, (0*WIDTH)(DI)(AX*1); \
	VMOVUPS V1, (1*WIDTH)(DI)(AX*1); \
	VMOVUPS V2, (2*WIDTH)(DI)(AX*1); \
	VMOVUPS V3, (3*WIDTH)(DI)(AX*1)

#define LOAD4_F16(a, b, c, d) \
	FETCH2; \
	VCVTPH2PS (0*WIDTH/2)(R8), a; \
	VCVTPH2PS (1*WIDTH/2)(R8), b; \
	VCVTPH2PS (2*WIDTH/2)(R8), c; \
	VCVTPH2PS (3*WIDTH/2)(R8), d

#define STORE4_F16 \
	VCVTPS2PH $0, V0, (0*WIDTH/2)(DI)(AX*1); \
	VCVTPS2PH $0, V1, (1*WIDTH/2)(DI)(AX*1); \
	VCVTPS2PH $0, V2, (2*WIDTH/2)(DI)(AX*1); \
	VCVTPS2PH $0, V3, (3*WIDTH/2)(DI)(AX*1)

// bfloat16 pairs come apart into even and odd elements by a shift and a mask,
// which is cheaper than moving them across the vector.
#define LOAD4_BF16(a, b, c, d) \
	FETCH2; \
	VMOVUPS (0*WIDTH)(R8), b; \
	VMOVUPS (1*WIDTH)(R8), d; \
	VPSLLD $16, b, a; \
	VPSLLD $16, d, c; \
	VANDPS V10, b, b; \
	VANDPS V10, d, d

#define STORE4_BF16 \
	ROUND_BF16(V0, V8); \
	ROUND_BF16(V1, V9); \
	ROUND_BF16(V2, V8); \
	ROUND_BF16(V3, V9); \
	VPSRLD $16, V0, V0; \
	VPSRLD $16, V2, V2; \
	VANDPS V10, V1, V1; \
	VANDPS V10, V3, V3; \
	VORPS V0, V1, V0; \
	VORPS V2, V3, V2; \
	VMOVUPS V0, (0*WIDTH)(DI)(AX*1); \
	VMOVUPS V2, (1*WIDTH)(DI)(AX*1)

// One element. These use the AVX2 forms.

#define LOAD1_8(mem, xreg) MOVBLZX mem, R8; VMOVD R8, xreg
#define LOAD1_16(mem, xreg) MOVWLZX mem, R8; VMOVD R8, xreg
#define LOAD1_32(mem, xreg) VMOVD mem, xreg
#define LOAD1_64(mem, xreg) VMOVQ mem, xreg
#define LOAD1_F16(mem, xreg) LOAD1_16(mem, xreg); VCVTPH2PS xreg, xreg
#define LOAD1_BF16(mem, xreg) LOAD1_16(mem, xreg); VPSLLD $16, xreg, xreg

#define STORE1_8(mem) VPEXTRB $0, X0, mem
#define STORE1_16(mem) VPEXTRW $0, X0, mem
#define STORE1_32(mem) VMOVD X0, mem
#define STORE1_64(mem) VMOVQ X0, mem
#define STORE1_F16(mem) VCVTPS2PH $0, X0, X0; VPEXTRW $0, X0, mem
#define STORE1_BF16(mem) ROUND_BF16(V0, V8); VPEXTRW $1, X0, mem

// Floats.

#define ADD_PS(src, acc, tmp) VADDPS src, acc, acc
#define ADD_PD(src, acc, tmp) VADDPD src, acc, acc
#define MUL_PS(src, acc, tmp) VMULPS src, acc, acc
#define MUL_PD(src, acc, tmp) VMULPD src, acc, acc
#define SCALE_PS(reg) VMULPS V15, reg, reg
#define SCALE_PD(reg) VMULPD V15, reg, reg

// VMINPS yields its second operand if the two are zeros or one is a NaN. The OR of
// both orders is therefore a NaN if either operand is one, and -0 if either is.
// With all signs flipped before and after, the same is the maximum.
#define FLIP_SIGN(reg) VXORPS V13, reg, reg
#define MIN_PS(src, acc, tmp) VMINPS src, acc, tmp; VMINPS acc, src, acc; VORPS tmp, acc, acc
#define MIN_PD(src, acc, tmp) VMINPD src, acc, tmp; VMINPD acc, src, acc; VORPD tmp, acc, acc

// Integers.

#define ADD_8(src, acc, tmp) VPADDB src, acc, acc
#define ADD_16(src, acc, tmp) VPADDW src, acc, acc
#define ADD_32(src, acc, tmp) VPADDD src, acc, acc
#define ADD_64(src, acc, tmp) VPADDQ src, acc, acc
#define MUL_16(src, acc, tmp) VPMULLW src, acc, acc
// AVX2 multiplies neither bytes nor int64. Bytes: the even ones, then the odd ones.
#define MUL_8(src, acc, tmp) \
	VPMULLW src, acc, tmp; \
	VPSLLW $8, tmp, tmp; \
	VPSRLW $8, tmp, tmp; \
	VPSRLW $8, src, src; \
	VPSRLW $8, acc, acc; \
	VPSLLW $8, acc, acc; \
	VPMULLW src, acc, acc; \
	VORPS tmp, acc, acc

// Products of the lower halves, and of each lower with the other's upper half.
#define MUL_64(src, acc, tmp) \
	VPSHUFD $0xb1, src, tmp; \
	VPMULLD acc, tmp, tmp; \
	VPMULUDQ src, acc, acc; \
	VPSLLQ $32, tmp, src; \
	VPADDQ src, acc, acc; \
	VPSRLQ $32, tmp, tmp; \
	VPSLLQ $32, tmp, tmp; \
	VPADDQ tmp, acc, acc

#define MUL_32(src, acc, tmp) VPMULLD src, acc, acc
#define MIN_U8(src, acc, tmp) VPMINUB src, acc, acc
#define MAX_U8(src, acc, tmp) VPMAXUB src, acc, acc
#define MIN_I8(src, acc, tmp) VPMINSB src, acc, acc
#define MAX_I8(src, acc, tmp) VPMAXSB src, acc, acc
#define MIN_U16(src, acc, tmp) VPMINUW src, acc, acc
#define MAX_U16(src, acc, tmp) VPMAXUW src, acc, acc
#define MIN_I16(src, acc, tmp) VPMINSW src, acc, acc
#define MAX_I16(src, acc, tmp) VPMAXSW src, acc, acc
#define MIN_I32(src, acc, tmp) VPMINSD src, acc, acc
#define MAX_I32(src, acc, tmp) VPMAXSD src, acc, acc

// AVX2 and AVX-512 both have the instructions for floats, which take the bits as they are.
#define AND_BITS(src, acc, tmp) VANDPS src, acc, acc
#define OR_BITS(src, acc, tmp) VORPS src, acc, acc
#define XOR_BITS(src, acc, tmp) VXORPS src, acc, acc

// AS_BOOL makes each bool, which is true if it is not 0, a 0 or a 1. V14 is 1.
#define AS_BOOL(reg) VPMINUB V14, reg, reg

// Results of uint8 extremes are at most canon: 255, or 1 for a bool.
#define CLAMP_U8(reg, tmp) VPMINUB V14, reg, reg
