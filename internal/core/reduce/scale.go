package reduce

import (
	"math"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// scaleWith sets dst = src × factor for integers.
func scaleWith(v variant, dt tensor.DType, dst, src []byte, factor float64) {
	srcs := [1][]byte{src}
	done := 0
	// Only an infinite factor can make a NaN. The kernels do not check for NaNs.
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

// tableLeast is the least length for which a table of all products of a byte pays.
const tableLeast = 2 << 10

// meanWith sets dst = factor × (the sum of the sources) for integers, in one pass over memory. It does whole turns, if
// there is a kernel for the type, and returns the number of bytes that it has done.
func meanWith(v variant, dt tensor.DType, dst []byte, srcs [][]byte, factor float64) (done int) {
	if v == portable || factor-factor != 0 {
		return 0
	}
	size := dt.Size()
	done = len(dst) / size &^ (wideElements - 1)
	step := max(callBytes/len(srcs)/size&^(wideElements-1), wideElements)
	switch {
	case size == 1:
		if !looksUp(v) || done < tableLeast {
			return 0
		}
		var table [256]byte
		for i := range table {
			table[i] = byte(i)
		}
		scaleWith(v, dt, table[:], table[:], factor)
		for at := 0; at < done; at += step {
			lookUpRange(v, dst, srcs, &table, at, min(at+step, done))
		}
	case size == 2 && halvings(factor) > 0:
		k := halveInt16
		if dt == tensor.Uint16 {
			k = halveUint16
		}
		for at := 0; at < done; at += step {
			halveRange(k, dst, srcs, halvings(factor), at, min(at+step, done))
		}
	case !averages(v, means[dt]) || !staysInside(dt, factor):
		return 0
	default:
		for at := 0; at < done; at += step {
			meanRange(v, means[dt], dst, srcs, factor, at, min(at+step, done))
		}
	}
	return done * size
}

// halvings is n if factor is 2 to the power of -n, with n from 1 to 14; otherwise 0. The mean over a power of two of
// ranks has such a factor.
func halvings(factor float64) int {
	fraction, exponent := math.Frexp(factor)
	if n := 1 - exponent; fraction == 0.5 && n >= 1 && n <= 14 {
		return n
	}
	return 0
}

// staysInside reports whether the kernels of means need not limit their results: no product of an int16 or int32 is
// outside an int32, no product of a uint16 is negative, and no product of an int64 is outside an int64.
func staysInside(dt tensor.DType, factor float64) bool {
	switch dt {
	case tensor.Uint16:
		return factor >= 0 && factor < 1<<15
	case tensor.Int16:
		return math.Abs(factor) < 1<<15
	}
	return math.Abs(factor) < 1
}

// integerLimits are the lowest and highest element of type dt. For int64 the second one is one more, because the
// highest int64 is no float64.
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
