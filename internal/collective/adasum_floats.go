package collective

import (
	"encoding/binary"
	"math"

	"github.com/gorovod/gorovod/internal/tensor"
)

// wideElements is how many elements adasum holds on the stack as float64.
const wideElements = 256

// The conversions around products keep the compiler from fusing them with the
// sums, which would round differently on other processors.

// multiplyFloats is the dot products of x and y, summed in the order of the
// elements.
func multiplyFloats(dt tensor.DType, x, y []byte) (d products) {
	var xBlock, yBlock [wideElements]float64
	step := wideElements * dt.Size()
	for off := 0; off < len(x); off += step {
		end := min(off+step, len(x))
		xs := widen(dt, &xBlock, x[off:end])
		ys := widen(dt, &yBlock, y[off:end])[:len(xs)]
		for i, u := range xs {
			v := ys[i]
			d.xy += float64(u * v)
			d.xx += float64(u * u)
			d.yy += float64(v * v)
		}
	}
	return d
}

// combineFloats sets x = cx×x + cy×y.
func combineFloats(dt tensor.DType, x, y []byte, cx, cy float64) {
	var xBlock, yBlock [wideElements]float64
	step := wideElements * dt.Size()
	for off := 0; off < len(x); off += step {
		end := min(off+step, len(x))
		xs := widen(dt, &xBlock, x[off:end])
		ys := widen(dt, &yBlock, y[off:end])[:len(xs)]
		for i, u := range xs {
			xs[i] = float64(cx*u) + float64(cy*ys[i])
		}
		narrow(dt, x[off:end], xs)
	}
}

// widen converts the elements of src, at most as many as fit, to float64.
func widen(dt tensor.DType, dst *[wideElements]float64, src []byte) []float64 {
	out := dst[:len(src)/dt.Size()]
	switch dt {
	case tensor.Float16:
		for i := range out {
			out[i] = float64(tensor.Float16ToFloat32(binary.NativeEndian.Uint16(src[2*i:])))
		}
	case tensor.BFloat16:
		for i := range out {
			out[i] = float64(tensor.BFloat16ToFloat32(binary.NativeEndian.Uint16(src[2*i:])))
		}
	case tensor.Float32:
		for i := range out {
			out[i] = float64(math.Float32frombits(binary.NativeEndian.Uint32(src[4*i:])))
		}
	case tensor.Float64:
		for i := range out {
			out[i] = math.Float64frombits(binary.NativeEndian.Uint64(src[8*i:]))
		}
	}
	return out
}

// narrow rounds src to elements of dst.
func narrow(dt tensor.DType, dst []byte, src []float64) {
	switch dt {
	case tensor.Float16:
		for i, f := range src {
			binary.NativeEndian.PutUint16(dst[2*i:], tensor.Float32ToFloat16(oddFloat32(f)))
		}
	case tensor.BFloat16:
		for i, f := range src {
			binary.NativeEndian.PutUint16(dst[2*i:], tensor.Float32ToBFloat16(oddFloat32(f)))
		}
	case tensor.Float32:
		for i, f := range src {
			binary.NativeEndian.PutUint32(dst[4*i:], math.Float32bits(float32(f)))
		}
	case tensor.Float64:
		for i, f := range src {
			binary.NativeEndian.PutUint64(dst[8*i:], math.Float64bits(f))
		}
	}
}

// oddFloat32 rounds to odd: of the two float32 about f, if f is not one itself,
// it is the one whose last bit is set. Rounding that to 16 bits gives what
// rounding f at once would have given.
func oddFloat32(f float64) float32 {
	near := float32(f)
	b := math.Float32bits(near)
	switch {
	case float64(near) == f || f != f || b&1 == 1:
		return near
	case math.Abs(float64(near)) > math.Abs(f):
		return math.Float32frombits(b - 1)
	default:
		return math.Float32frombits(b + 1)
	}
}
