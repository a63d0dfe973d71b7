package codec

import (
	"encoding/binary"
	"math"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

func init() { register(tensor.WireFloat8, float8s{}) }

// float8s sends blocks of up to 32 float32 as floats of 8 bits with a common scale, a power of two, as in the format
// MXFP8 (Open Compute Project, Microscaling Formats 1.0):
//
//	block    scale (one byte e) number number …   (float8_e4m3fn)
//	value    number × 2^(e-127)
//	e = 255  a block with an infinity, a NaN or a number at the end of float32's range: all its values are NaN
//
// The scale is the smallest with which the block's largest number is rounded to a finite one. A number keeps four
// significant bits, down to 2^-14 of the largest; below that, steps are equal. With integers of 8 bits and the same
// scale all steps are equal, 1/127 of the largest number. Because scales are powers of two, products and errors are
// exact, and encoding a second time changes nothing.
type float8s struct{}

const (
	float8Block = 32
	float8NaN   = 255 // the scale of a block that has no finite values
	// With the scale e-127 = exponent-8, a number from 1 to 2 times a power of two becomes one from 256 to 512, of
	// which float8_e4m3fn has those up to 448.
	float8Below = 8
	// A float32's bits plus float8Over have the next exponent if its fraction is at least 13/16: then the number would
	// be rounded to 480.
	float8Over = 3 << 19
	infinite   = 255 << 23
	// Adding halfStep and the last bit that is kept rounds a float32's bits to 3 bits of fraction, ties to even.
	halfStep = 1<<19 - 1
	// leastNormal is the bits of 2^-6, from which on float8_e4m3fn has 3 bits of fraction.
	leastNormal = (127 - 6) << 23
	// toInt is added to a float32 to round it to an integer, which is then in its lowest bits.
	toInt = 3 << 22
)

// float8Values are the numbers of all codes.
var float8Values = func() (values [256]float32) {
	for code := range values {
		values[code] = tensor.Float8ToFloat32(tensor.Float8E4M3FN, uint8(code))
	}
	return values
}()

func (float8s) Block() int { return float8Block }

func (float8s) Bytes(_ tensor.DType, n int) int { return n + (n+float8Block-1)/float8Block }

func (float8s) Encode(_ tensor.DType, dst, src, rest []byte) {
	var sums [float8Block]float32
	for len(src) > 0 {
		n := min(len(src)/4, float8Block)
		largest := uint32(0)
		for i := range n {
			x := float32At(src, i)
			if rest != nil {
				x += float32At(rest, i)
			}
			sums[i] = x
			largest = max(largest, math.Float32bits(x)&^(1<<31))
		}
		scale := encodeFloat8(dst[:1+n], sums[:n], largest)
		if rest != nil {
			for i, code := range dst[1 : 1+n] {
				putFloat32(rest, i, sums[i]-float8Values[code]*scale)
			}
			rest = rest[4*n:]
		}
		src, dst = src[4*n:], dst[1+n:]
	}
}

// encodeFloat8 encodes a block, of which largest has the bits of the largest number without its sign, and returns the
// scale. If it is not finite, the numbers become 0.
func encodeFloat8(dst []byte, numbers []float32, largest uint32) float32 {
	if largest += float8Over; largest >= infinite {
		dst[0] = float8NaN
		clear(dst[1:])
		clear(numbers)
		return 0
	}
	e := max(int(largest>>23)-float8Below, 1)
	dst[0] = byte(e)
	inverse := math.Float32frombits(uint32(254-e) << 23)
	dst = dst[1:]
	for i, x := range numbers {
		dst[i] = float8Of(x * inverse)
	}
	return math.Float32frombits(uint32(e) << 23)
}

// float8Of rounds a number of less than 464 to float8_e4m3fn, ties to even. There is no negative zero.
func float8Of(x float32) byte {
	bits := math.Float32bits(x)
	sign, bits := byte(bits>>24)&0x80, bits&^(1<<31)
	if bits < leastNormal {
		steps := float32(math.Float32frombits(bits)*512) + toInt
		code := byte(math.Float32bits(steps))
		if code == 0 {
			return 0
		}
		return sign | code
	}
	bits += halfStep + bits>>20&1
	return sign | byte(bits>>20-(127-7)<<3)
}

func (float8s) Decode(_ tensor.DType, dst, src []byte, scale float64) {
	by := float32(scale)
	for len(dst) > 0 {
		n := min(len(dst)/4, float8Block)
		unit := float8Scale(src[0])
		for i, code := range src[1 : 1+n] {
			putFloat32(dst, i, float8Values[code]*unit*by)
		}
		dst, src = dst[4*n:], src[1+n:]
	}
}

func (float8s) Add(_ tensor.DType, dst, own, src []byte, scale float64) {
	by := float32(scale)
	for len(dst) > 0 {
		n := min(len(dst)/4, float8Block)
		unit := float8Scale(src[0])
		for i, code := range src[1 : 1+n] {
			// The conversion keeps the compiler from fusing the product and the sum, which would round once.
			putFloat32(dst, i, (float32At(own, i)+float32(float8Values[code]*unit))*by)
		}
		dst, own, src = dst[4*n:], own[4*n:], src[1+n:]
	}
}

// float8Scale is the scale of a block.
func float8Scale(e byte) float32 {
	if e == float8NaN {
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(e) << 23)
}

func float32At(b []byte, i int) float32 {
	return math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
}

func putFloat32(b []byte, i int, x float32) {
	binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(x))
}
