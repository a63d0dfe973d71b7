package tensor

import "math"

// Float8ToFloat32 converts the bits of a float of 8 bits, exactly. The formats are those of the Open Compute Project:
// float8_e5m2 is the upper half of a float16; float8_e4m3fn has no infinities, and one NaN of each sign.
func Float8ToFloat32(dt DType, b uint8) float32 {
	if dt == Float8E5M2 {
		return Float16ToFloat32(uint16(b) << 8)
	}
	exponent, mantissa := int(b>>3)&0xf, int(b&7)
	var f float64
	switch {
	case b&0x7f == 0x7f:
		return float32(math.NaN())
	case exponent == 0:
		f = math.Ldexp(float64(mantissa), -9)
	default:
		f = math.Ldexp(float64(mantissa+8), exponent-10)
	}
	if b&0x80 != 0 {
		f = -f // also for 0
	}
	return float32(f)
}

// Float8Of returns the bits of the 8-bit float that equals f, and whether there is one. It is slow, and meant for
// single numbers.
func Float8Of(dt DType, f float32) (bits uint8, exact bool) {
	for b := range 0x100 {
		if x := Float8ToFloat32(dt, uint8(b)); math.Float32bits(x) == math.Float32bits(f) {
			return uint8(b), true
		}
	}
	return 0, false
}
