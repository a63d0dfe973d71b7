package tensor

import "math"

// 16-bit floats travel as their bits. Widening to float32 is exact. Narrowing rounds to the nearest value, ties to
// even, and overflows to infinity. A NaN stays a NaN in both directions: it keeps its sign and the leading bits of its
// payload, and becomes quiet, as with x86's conversion instructions. The code uses only integer arithmetic, so that a
// thread's floating-point mode (flush to zero, rounding) cannot change a result.

const quiet32 = 0x0040_0000 // the bit of a float32 NaN that makes it quiet

// Float16ToFloat32 converts the bits of an IEEE 754 binary16, exactly.
func Float16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h) & 0x3ff
	switch {
	case exp == 0x1f && man != 0:
		return math.Float32frombits(sign | 0x7f80_0000 | quiet32 | man<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f80_0000)
	case exp == 0:
		// man × 2⁻²⁴, at most 2⁻¹⁴: a normal float32, so this is exact in every mode.
		return math.Float32frombits(sign | math.Float32bits(float32(man)*0x1p-24))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | man<<13)
}

// Float32ToFloat16 rounds to an IEEE 754 binary16, ties to even, and returns its bits.
func Float32ToFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits>>16) & 0x8000
	abs := bits &^ (1 << 31)
	switch exp := abs >> 23; {
	case abs > 0x7f80_0000:
		return sign | 0x7e00 | uint16(abs>>13)&0x3ff
	case abs >= 0x477f_f000: // 65520, half way from the largest float16 to 2¹⁶
		return sign | 0x7c00
	case exp >= 127-14:
		abs -= (127 - 15) << 23
		return sign | uint16((abs+0xfff+abs>>13&1)>>13)
	case exp < 127-25: // less than half of the smallest subnormal
		return sign
	default:
		// A subnormal counts units of 2⁻²⁴. A carry into bit 10 correctly gives the smallest normal number.
		man := abs&0x7f_ffff | 0x80_0000
		shift := 126 - exp
		q, rest, half := man>>shift, man&(1<<shift-1), uint32(1)<<(shift-1)
		if rest > half || rest == half && q&1 == 1 {
			q++
		}
		return sign | uint16(q)
	}
}

// BFloat16ToFloat32 converts a bfloat16, the upper half of a float32, exactly.
func BFloat16ToFloat32(h uint16) float32 {
	bits := uint32(h) << 16
	if bits&^(1<<31) > 0x7f80_0000 {
		bits |= quiet32
	}
	return math.Float32frombits(bits)
}

// Float32ToBFloat16 rounds to a bfloat16, ties to even.
func Float32ToBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&^(1<<31) > 0x7f80_0000 {
		return uint16((bits | quiet32) >> 16)
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
