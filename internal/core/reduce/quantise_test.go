package reduce

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// numbers returns n float32 as bytes, of one of the kinds that codecs must accept.
func numbers(rnd *rand.Rand, kind string, n int) []byte {
	b := make([]byte, 4*n)
	for i := range n {
		x := rnd.NormFloat64()
		switch kind {
		case "heavy tails":
			x = x / (rnd.Float64() * rnd.Float64())
		case "sparse":
			if rnd.IntN(20) > 0 {
				x = 0
			}
		case "constant":
			x = 0.3
		case "zero":
			x = 0
		case "tiny":
			x *= 0x1p-135
		case "huge":
			x = math.Copysign(0x1p127*(1+0.9*rnd.Float64()), x)
		case "any exponent":
			x = math.Ldexp(x, rnd.IntN(250)-130)
		}
		putFloat(b, i, float32(x))
	}
	return b
}

var kinds = []string{"normal", "heavy tails", "sparse", "constant", "zero", "tiny", "huge", "any exponent"}

func floatsOf(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = floatAt(b, i)
	}
	return f
}

// The sent values and the errors together are exactly the input. The error of a number is at most half a step of its
// block, so it is smaller than the number (a contraction).
func TestQuantiseLosesNothing(t *testing.T) {
	rnd := source(t)
	for _, kind := range kinds {
		for _, n := range []int{0, 1, 31, 32, 33, 64, 1000} {
			src := numbers(rnd, kind, n)
			rest, wire, back := make([]byte, 4*n), make([]byte, Quantised(n)), make([]byte, 4*n)
			Quantise(wire, src, rest)
			Dequantise(back, wire, 1)
			x, e, y := floatsOf(src), floatsOf(rest), floatsOf(back)
			for lo := 0; lo < n; lo += BlockElements {
				largest, before, after := 0.0, 0.0, 0.0
				hi := min(lo+BlockElements, n)
				for i := lo; i < hi; i++ {
					largest = max(largest, math.Abs(float64(x[i])))
					before += float64(x[i]) * float64(x[i])
					after += float64(e[i]) * float64(e[i])
				}
				for i := lo; i < hi; i++ {
					if float64(y[i])+float64(e[i]) != float64(x[i]) {
						t.Fatalf("%s: %v became %v and %v", kind, x[i], y[i], e[i])
					}
					if limit := max(largest/63.75, 0x1p-126) / 2; math.Abs(float64(e[i])) > limit {
						t.Fatalf("%s: the error of %v is %v, at most %v is possible", kind, x[i], e[i], limit)
					}
				}
				if after > before {
					t.Fatalf("%s: the errors' square is %v, that of the numbers %v", kind, after, before)
				}
			}
			again := make([]byte, len(wire))
			Quantise(again, back, nil)
			if !bytes.Equal(again, wire) {
				t.Errorf("%s: quantising a second time changes something", kind)
			}
		}
	}
}

// A block with a number that is not finite says so, and forgets its errors. The blocks beside it are unaffected.
func TestQuantiseOfExtremes(t *testing.T) {
	for _, bad := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32} {
		const n = 3*BlockElements + 5
		for _, at := range []int{BlockElements + 3, n - 1} {
			src, rest := make([]byte, 4*n), make([]byte, 4*n)
			for i := range n {
				putFloat(src, i, 1)
				putFloat(rest, i, 0x1p-20)
			}
			putFloat(src, at, float32(bad))
			wire, back := make([]byte, Quantised(n)), make([]byte, 4*n)
			Quantise(wire, src, rest)
			Dequantise(back, wire, 0.5)
			for i, x := range floatsOf(back) {
				same := i/BlockElements == at/BlockElements
				if e := floatAt(rest, i); same && (x == x || e != 0) || !same && (x != 0.5 || e != 0x1p-20) {
					t.Fatalf("%v in element %d: element %d is %v, and %v is left over", bad, at, i, x, e)
				}
			}
		}
	}
}

// Every variant has the same bits as the portable form, touches nothing else, and needs no alignment.
func TestQuantisingVariantsAgree(t *testing.T) {
	rnd := source(t)
	for _, n := range []int{1, 32, 33, 100, 64 * BlockElements, callBlocks*BlockElements + 77} {
		for _, kind := range append(kinds, "infinite") {
			src, rest, sum := numbers(rnd, kind, n), numbers(rnd, "tiny", n), numbers(rnd, "normal", n)
			if kind == "infinite" {
				putFloat(src, rnd.IntN(n), float32(math.Inf(1)))
				putFloat(src, rnd.IntN(n), float32(math.NaN()))
			}
			var want [5][]byte
			for _, v := range variants() {
				off := rnd.IntN(64)
				wire, wireIntact := guarded(Quantised(n), off)
				plain, plainIntact := guarded(Quantised(n), off+1)
				left, leftIntact := guarded(4*n, off+2)
				added, addedIntact := guarded(4*n, off+3)
				back, backIntact := guarded(4*n, off+4)
				copy(left, rest)
				copy(added, sum)
				quantiseWith(v, wire, src, left)
				quantiseWith(v, plain, src, nil)
				addQuantisedWith(v, added, wire)
				dequantiseWith(v, back, wire, 0.3)
				got := [5][]byte{wire, left, plain, added, back}
				if v == portable {
					for i := range want {
						want[i] = bytes.Clone(got[i])
					}
				}
				for i := range want {
					if !bytes.Equal(got[i], want[i]) {
						t.Fatalf("%v, %d of kind %s: result %d is not that of the portable form", v, n, kind, i)
					}
				}
				if !wireIntact() || !plainIntact() || !leftIntact() || !addedIntact() || !backIntact() {
					t.Fatalf("%v, %d of kind %s: wrote beyond the end", v, n, kind)
				}
			}
		}
	}
}

// BenchmarkQuantise compares with float16, in bytes of float32.
func BenchmarkQuantise(b *testing.B) {
	for _, size := range benchSizes {
		n := size.bytes / 4
		x, e, wire := make([]byte, 4*n), make([]byte, 4*n), make([]byte, 4*n)
		copy(x, numbers(rand.New(rand.NewPCG(1, 2)), "normal", n))
		q, half := wire[:Quantised(n)], wire[:2*n]
		for _, v := range variants() {
			run := func(name string, f func()) {
				b.Run(fmt.Sprintf("%s/%s/%v", name, size.name, v), func(b *testing.B) {
					b.SetBytes(int64(4 * n))
					b.ReportAllocs()
					for range b.N {
						f()
					}
				})
			}
			if v != avx512 {
				run("quantise with errors", func() { quantiseWith(v, q, x, e) })
				run("quantise", func() { quantiseWith(v, q, x, nil) })
				run("add", func() { addQuantisedWith(v, e, q) })
				run("dequantise", func() { dequantiseWith(v, e, q, 0.5) })
			}
			run("float16: cast", func() { castWith(v, tensor.Float16, tensor.Float32, half, x) })
		}
	}
}

// Numbers below the smallest scale, 2^-126, are rounded like others: they arrive late, and are not lost.
func TestSubnormalNumbersAreOwed(t *testing.T) {
	for _, v := range []variant{portable, best} {
		for _, x := range []float32{1e-40, 1e-39, 5.8e-39, -6e-39, 1.2e-38} {
			src, rest := make([]byte, 4*BlockElements), make([]byte, 4*BlockElements)
			dst, sum := make([]byte, blockBytes), make([]byte, 4*BlockElements)
			for i := range BlockElements {
				putFloat(src, i, x)
			}
			const steps = 1000
			for range steps {
				quantiseWith(v, dst, src, rest)
				addQuantisedWith(v, sum, dst)
			}
			if got, want := floatAt(sum, 0), steps*x; math.Abs(float64(got-want)) > 1.2e-38 {
				t.Errorf("variant %v: %d times %v is %v, want %v", v, steps, x, got, want)
			}
		}
	}
}
