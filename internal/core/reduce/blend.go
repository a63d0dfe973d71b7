package reduce

import (
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Blend sets x = cx×x + cy×y for floats, in float64, rounded once. The arrays have the same length and do not overlap.
// They need no alignment.
func Blend(dt tensor.DType, x, y []byte, cx, cy float64) { blendWith(best, dt, x, y, cx, cy) }

func blendWith(v variant, dt tensor.DType, x, y []byte, cx, cy float64) {
	n := checkPair("blend", dt, x, y)
	done := 0
	if v == avx512 || v == avx2 && dt.Size() > 2 { // only AVX-512 has the rounding that 16-bit floats need
		done = n &^ (wideElements - 1)
		step := callBytes / 2 / dt.Size()
		srcs := [2][]byte{x, y}
		for at := 0; at < done; at += step {
			blendRange(v, blendKernels[dt], dt, srcs[:], cx, cy, at, min(at+step, done))
		}
	}
	blendPortable(dt, x[done*dt.Size():], y[done*dt.Size():], cx, cy)
}

func checkPair(what string, dt tensor.DType, x, y []byte) (n int) {
	if !isFloat(dt) {
		panic(fmt.Sprintf("reduce: no %s of elements of type %v", what, dt))
	}
	if len(x) != len(y) {
		panic(fmt.Sprintf("reduce: %s of %d bytes and %d", what, len(x), len(y)))
	}
	return elements(dt, x)
}

func blendPortable(dt tensor.DType, x, y []byte, cx, cy float64) {
	var xBlock, yBlock [blockLen]float64
	for len(x) > 0 {
		n := min(blockLen, len(x)/dt.Size())
		xs, ys := xBlock[:n], yBlock[:n]
		loadDoubles(dt, xs, x)
		loadDoubles(dt, ys, y)
		for i, u := range xs {
			xs[i] = float64(cx*u) + float64(cy*ys[i])
		}
		finishFloats(xs, 1)
		storeDoubles(dt, x, xs)
		x, y = x[n*dt.Size():], y[n*dt.Size():]
	}
}

// loadDoubles converts elements of src to float64, until dst is full.
func loadDoubles(from tensor.DType, dst []float64, src []byte) {
	if from == tensor.Float64 {
		copy(bytesOf(dst), src)
		return
	}
	var block [blockLen]float32
	mid := block[:len(dst)]
	loadFloats(from, mid, src)
	for i, f := range mid {
		dst[i] = float64(f)
	}
}

// storeDoubles rounds src, once, and writes it to the start of dst.
func storeDoubles(to tensor.DType, dst []byte, src []float64) {
	if to == tensor.Float64 {
		copy(dst, bytesOf(src))
		return
	}
	var block [blockLen]float32
	mid := block[:len(src)]
	for i, f := range src {
		if to == tensor.Float32 {
			mid[i] = float32(f)
		} else {
			mid[i] = oddFloat32(f)
		}
	}
	storeFloats(to, dst, mid)
}

// oddFloat32 rounds to odd: if f is no float32, it returns that one of the two adjacent float32 whose last bit is set.
// Rounding the result to 16 bits gives the same as rounding f to 16 bits at once.
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
