package reduce

import (
	"crypto/subtle"
	"math"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

type integer interface {
	uint8 | int8 | uint16 | int16 | int32 | int64
}

type float interface {
	float32 | float64
}

type number interface {
	integer | float
}

// blockLen is the number of elements that the portable kernels hold on the stack at a time. They copy blocks there, so
// their loops work for any alignment, and for a dst that is also a source.
const blockLen = 512

// reducePortable is Reduce in plain Go. The arguments have been checked.
func reducePortable(dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	switch dt {
	case tensor.Uint8:
		reduceIntegers[uint8](op, dst, srcs, scale)
	case tensor.Int8:
		reduceIntegers[int8](op, dst, srcs, scale)
	case tensor.Uint16:
		reduceIntegers[uint16](op, dst, srcs, scale)
	case tensor.Int16:
		reduceIntegers[int16](op, dst, srcs, scale)
	case tensor.Int32:
		reduceIntegers[int32](op, dst, srcs, scale)
	case tensor.Int64:
		reduceIntegers[int64](op, dst, srcs, scale)
	case tensor.Float32:
		reduceFloats[float32](op, dst, srcs, scale)
	case tensor.Float64:
		reduceFloats[float64](op, dst, srcs, scale)
	case tensor.Float16, tensor.BFloat16:
		reduceHalves(dt, op, dst, srcs, scale)
	case tensor.Bool:
		reduceBools(op, dst, srcs)
	}
}

func reduceIntegers[T integer](op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	var accBlock, inBlock [blockLen]T
	for off := 0; off < len(dst); {
		acc, end := gather(op, accBlock[:], inBlock[:], dst, srcs, off)
		if scale != 1 {
			scaleIntegers(acc, scale)
		}
		copy(dst[off:end], bytesOf(acc))
		off = end
	}
}

func reduceFloats[T float](op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	var accBlock, inBlock [blockLen]T
	for off := 0; off < len(dst); {
		acc, end := gather(op, accBlock[:], inBlock[:], dst, srcs, off)
		finishFloats(acc, T(scale))
		copy(dst[off:end], bytesOf(acc))
		off = end
	}
}

// reduceBools makes each element 0 or 1, and combines them as integers.
func reduceBools(op tensor.ReduceOp, dst []byte, srcs [][]byte) {
	var accBlock, inBlock [blockLen]uint8
	for off := 0; off < len(dst); {
		n := min(blockLen, len(dst)-off)
		acc, in := accBlock[:n], inBlock[:n]
		for i, src := range srcs {
			for k, x := range src[off : off+n] {
				in[k] = min(x, 1)
			}
			if i == 0 {
				acc, in = in, acc
				continue
			}
			combine(boolOp(op), acc, in)
		}
		copy(dst[off:], acc)
		off += n
	}
}

// boolOp is op on bools as an operation on 0 and 1.
func boolOp(op tensor.ReduceOp) tensor.ReduceOp {
	switch op {
	case tensor.Sum:
		return tensor.Max
	case tensor.Product:
		return tensor.Min
	}
	return op
}

// reduceHalves reduces 16-bit floats in float32.
func reduceHalves(dt tensor.DType, op tensor.ReduceOp, dst []byte, srcs [][]byte, scale float64) {
	var accBlock, inBlock [blockLen]float32
	var rawBlock [blockLen]uint16
	for off := 0; off < len(dst); {
		end := min(off+2*blockLen, len(dst))
		n := (end - off) / 2
		acc, in, raw := accBlock[:n], inBlock[:n], rawBlock[:n]
		for i, src := range srcs {
			copy(bytesOf(raw), src[off:end])
			if i == 0 {
				widen(dt, acc, raw)
				continue
			}
			widen(dt, in, raw)
			combine(op, acc, in)
		}
		finishFloats(acc, float32(scale))
		narrow(dt, raw, acc)
		copy(dst[off:end], bytesOf(raw))
		off = end
	}
}

func widen(dt tensor.DType, dst []float32, src []uint16) {
	dst = dst[:len(src)]
	if dt == tensor.BFloat16 {
		for i, h := range src {
			dst[i] = tensor.BFloat16ToFloat32(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = tensor.Float16ToFloat32(h)
	}
}

func narrow(dt tensor.DType, dst []uint16, src []float32) {
	dst = dst[:len(src)]
	if dt == tensor.BFloat16 {
		for i, f := range src {
			dst[i] = tensor.Float32ToBFloat16(f)
		}
		return
	}
	for i, f := range src {
		dst[i] = tensor.Float32ToFloat16(f)
	}
}

// gather combines as many of the sources' elements from byte off on into acc as fit, with in as scratch memory. It
// returns the part of acc that it filled, and the offset of the byte after it.
func gather[T number](op tensor.ReduceOp, acc, in []T, dst []byte, srcs [][]byte, off int) ([]T, int) {
	n := min(len(bytesOf(acc)), len(dst)-off) * len(acc) / len(bytesOf(acc))
	acc, in = acc[:n], in[:n]
	end := off + len(bytesOf(acc))
	copy(bytesOf(acc), srcs[0][off:end])
	for _, src := range srcs[1:] {
		copy(bytesOf(in), src[off:end])
		combine(op, acc, in)
	}
	return acc, end
}

// combine sets acc = acc op in. Go's min and max of floats do what the package promises: they propagate NaN and order
// -0 before +0.
func combine[T number](op tensor.ReduceOp, acc, in []T) {
	in = in[:len(acc)]
	switch op {
	case tensor.Sum:
		for i := range acc {
			acc[i] += in[i]
		}
	case tensor.Product:
		for i := range acc {
			acc[i] *= in[i]
		}
	case tensor.Min:
		for i := range acc {
			acc[i] = min(acc[i], in[i])
		}
	case tensor.Max:
		for i := range acc {
			acc[i] = max(acc[i], in[i])
		}
	case tensor.BitAnd, tensor.BitOr, tensor.BitXor:
		combineBits(op, bytesOf(acc), bytesOf(in))
	}
}

// combineBits is combine for operations on bits, which do not depend on the element type.
func combineBits(op tensor.ReduceOp, acc, in []byte) {
	switch op {
	case tensor.BitAnd:
		for i := range acc {
			acc[i] &= in[i]
		}
	case tensor.BitOr:
		for i := range acc {
			acc[i] |= in[i]
		}
	case tensor.BitXor:
		subtle.XORBytes(acc, acc, in)
	}
}

// finishFloats scales acc, and replaces each NaN by the package's NaN. The conversion keeps the product from being
// fused with anything.
func finishFloats[T float](acc []T, scale T) {
	if scale != 1 {
		for i := range acc {
			acc[i] = T(acc[i] * scale)
		}
	}
	for i := range acc {
		if acc[i] != acc[i] {
			acc[i] = T(quietNaN)
		}
	}
}

// quietNaN has neither sign nor payload. A conversion to float32 preserves that.
var quietNaN = math.Float64frombits(0x7ff8_0000_0000_0000)

// scaleIntegers multiplies in float64, truncates toward zero and saturates.
func scaleIntegers[T integer](acc []T, factor float64) {
	lowest, highest := limits[T]()
	// The highest int64 is no float64, but one more than the highest element is, for each type.
	low, beyond := float64(lowest), float64(highest/2+1)*2
	for i, x := range acc {
		switch f := float64(x) * factor; {
		case f >= beyond:
			acc[i] = highest
		case f <= low:
			acc[i] = lowest
		case f != f:
			acc[i] = 0
		default:
			acc[i] = T(f)
		}
	}
}

func limits[T integer]() (lowest, highest T) {
	ones := ^T(0)
	if ones > 0 {
		return 0, ones
	}
	highest = 1
	for next := highest; next > 0; next = highest<<1 | 1 {
		highest = next
	}
	return ^highest, highest
}
