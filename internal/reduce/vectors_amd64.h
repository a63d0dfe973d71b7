// Operations on one vector, from which the kernels are put together: see
// loops_amd64.h for what each does. Those here have the same form in AVX2 and
// AVX-512, with registers V0…V15 being Y or Z.

#define NONE(reg)
#define NONE2(reg, tmp)

// Loads and stores.

#define LOAD(mem, reg) VMOVUPS mem, reg
#define STORE(reg, mem, tmp) VMOVUPS reg, mem

#define LOAD_F16(mem, reg) VCVTPH2PS mem, reg
#define STORE_F16(reg, mem, tmp) VCVTPS2PH $0, reg, mem

#define LOAD_BF16(mem, reg) VPMOVZXWD mem, reg; VPSLLD $16, reg, reg

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
#define STORE1_BF16(mem) ROUND_BF16(V0, V8); VPEXTRW $0, X0, mem

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

// Results of uint8 extremes are at most canon: 255, or 1 for a bool.
#define CLAMP_U8(reg, tmp) VPMINUB V14, reg, reg
