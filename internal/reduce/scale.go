package reduce

import (
	"math"

	"github.com/gorovod/gorovod/internal/tensor"
)

// scaleWith sets dst = src × factor for integers.
func scaleWith(v variant, dt tensor.DType, dst, src []byte, factor float64) {
	srcs := [1][]byte{src}
	done := 0
	// Only an infinite factor can make NaN, which the kernels do not look for.
	if v != portable && factor-factor == 0 {
		n := len(dst) / dt.Size()
		done = n &^ (wideElements - 1)
		low, high := integerLimits(dt)
		step := callBytes / dt.Size()
		for at := 0; at < done; at += step {
			scaleRange(v, scalings[dt], dst, srcs[:], factor, low, high, at, min(at+step, done))
		}
		done *= dt.Size()
	}
	srcs[0] = src[done:]
	reducePortable(dt, tensor.Sum, dst[done:], srcs[:], factor)
}

// integerLimits are the lowest and highest element of type dt; of int64, whose
// highest is no float64, the second is one more.
func integerLimits(dt tensor.DType) (low, high float64) {
	switch dt {
	case tensor.Uint8:
		return 0, math.MaxUint8
	case tensor.Int8:
		return math.MinInt8, math.MaxInt8
	case tensor.Uint16:
		return 0, math.MaxUint16
	case tensor.Int16:
		return math.MinInt16, math.MaxInt16
	case tensor.Int32:
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, -math.MinInt64
}
