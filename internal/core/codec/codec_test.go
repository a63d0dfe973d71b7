package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

func TestEachFormHasACodec(t *testing.T) {
	for w := range tensor.Wire(tensor.NumWires) {
		if (Of(w) == nil) != (w == tensor.WireAsIs) || (len(w.Types()) == 0) != (w == tensor.WireAsIs) {
			t.Errorf("%v: codec %v, for %v", w, Of(w), w.Types())
		}
	}
}

// forms calls do for each form and each of its types.
func forms(t *testing.T, do func(t *testing.T, w tensor.Wire, dt tensor.DType)) {
	for w := tensor.WireAsIs + 1; w < tensor.NumWires; w++ {
		for _, dt := range w.Types() {
			t.Run(fmt.Sprint(w, " of ", dt), func(t *testing.T) { do(t, w, dt) })
		}
	}
}

// numbers makes n numbers of one of the kinds that codecs must accept.
func numbers(rng *rand.Rand, kind string, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
		switch kind {
		case "heavy tails":
			x[i] /= rng.Float64() + 1e-3
		case "sparse":
			if rng.IntN(20) > 0 {
				x[i] = 0
			}
		case "constant":
			x[i] = 0.3
		case "zero":
			x[i] = 0
		case "small": // also below the least normal number of 16 bits
			x[i] = math.Ldexp(x[i], -rng.IntN(30))
		}
	}
	return x
}

var kinds = []string{"normal", "heavy tails", "sparse", "constant", "zero", "small"}

func encoded(dt tensor.DType, x []float64) []byte {
	var b []byte
	for _, v := range x {
		if dt == tensor.Float32 {
			b = binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(v)))
		} else {
			b = binary.NativeEndian.AppendUint64(b, math.Float64bits(v))
		}
	}
	return b
}

func at(dt tensor.DType, b []byte, i int) float64 {
	if dt == tensor.Float32 {
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:])))
	}
	return math.Float64frombits(binary.NativeEndian.Uint64(b[8*i:]))
}

// Values and errors together are the input, exactly, and no error is larger than its number.
func TestEncodingLosesNothing(t *testing.T) {
	forms(t, func(t *testing.T, w tensor.Wire, dt tensor.DType) {
		if !w.Keeps() {
			t.Skip("it keeps no errors")
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, kind := range kinds {
			for _, n := range []int{0, 1, 31, 32, 33, 64, 1000} {
				src := encoded(dt, numbers(rng, kind, n))
				rest, wire, back := make([]byte, len(src)), make([]byte, Of(w).Bytes(dt, n)), make([]byte, len(src))
				Of(w).Encode(dt, wire, src, rest)
				Of(w).Decode(dt, back, wire, 1)
				for i := range n {
					x, e, v := at(dt, src, i), at(dt, rest, i), at(dt, back, i)
					if v+e != x || math.Abs(e) > math.Abs(x) {
						t.Fatalf("%s, number %d of %d: %v became %v, and %v is kept", kind, i, n, x, v, e)
					}
				}
			}
		}
	})
}

// Decoded values have the same code, and all ways to decode agree.
func TestEncodingAgainChangesNothing(t *testing.T) {
	forms(t, func(t *testing.T, w tensor.Wire, dt tensor.DType) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, kind := range kinds {
			for _, n := range []int{1, 31, 32, 33, 1000} {
				c, src := Of(w), encoded(dt, numbers(rng, kind, n))
				wire, again := make([]byte, c.Bytes(dt, n)), make([]byte, c.Bytes(dt, n))
				back, half, sum := make([]byte, len(src)), make([]byte, len(src)), make([]byte, len(src))
				c.Encode(dt, wire, src, nil)
				c.Decode(dt, back, wire, 1)
				c.Decode(dt, half, wire, 0.5)
				c.Encode(dt, again, back, nil)
				if !bytes.Equal(wire, again) {
					t.Fatalf("%s, %d numbers: %x became %x", kind, n, wire, again)
				}
				own := encoded(dt, numbers(rng, "normal", n))
				c.Add(dt, sum, own, wire, 0.5)
				c.Add(dt, own, own, wire, 0.5)
				if !bytes.Equal(sum, own) {
					t.Fatalf("%s, %d numbers: a sum differs in place", kind, n)
				}
				for i := range n {
					if x := at(dt, back, i); at(dt, half, i) != x/2 {
						t.Fatalf("%s: half of %v is %v", kind, x, at(dt, half, i))
					}
				}
			}
		}
	})
}

func TestSums(t *testing.T) {
	forms(t, func(t *testing.T, w tensor.Wire, dt tensor.DType) {
		c, wire, sum := Of(w), make([]byte, Of(w).Bytes(dt, 3)), make([]byte, 3*dt.Size())
		c.Encode(dt, wire, encoded(dt, []float64{1, -2, 0}), nil)
		c.Add(dt, sum, encoded(dt, []float64{3, 0.5, -1}), wire, 2)
		if want := encoded(dt, []float64{8, -3, -2}); !bytes.Equal(sum, want) {
			t.Errorf("the sums are %v, %v and %v", at(dt, sum, 0), at(dt, sum, 1), at(dt, sum, 2))
		}
	})
}

// An infinity or a NaN is never lost.
func TestNumbersThatAreNotFinite(t *testing.T) {
	forms(t, func(t *testing.T, w tensor.Wire, dt tensor.DType) {
		for _, bad := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
			src := encoded(dt, []float64{1, bad, 2})
			rest, wire, back := make([]byte, len(src)), make([]byte, Of(w).Bytes(dt, 3)), make([]byte, len(src))
			Of(w).Encode(dt, wire, src, rest)
			Of(w).Decode(dt, back, wire, 1)
			if x := at(dt, back, 1); !math.IsNaN(x) && x != bad {
				t.Errorf("%v became %v", bad, x)
			}
			for i := range 3 {
				if e := at(dt, rest, i); e != 0 {
					t.Errorf("beside %v, %v is kept", bad, e)
				}
			}
		}
	})
}

// float8Of chooses the nearest code, the even one of two, as a search of all codes does.
func TestFloat8Of(t *testing.T) {
	nearest := func(x float32) byte {
		best, distance := byte(0), math.Inf(1)
		for code := range 0x7f {
			d := math.Abs(float64(float8Values[code]) - math.Abs(float64(x)))
			if d < distance || d == distance && code%2 == 0 {
				best, distance = byte(code), d
			}
		}
		if math.Signbit(float64(x)) && best > 0 {
			best |= 0x80
		}
		return best
	}
	for code := range 0x7e {
		low, high := float8Values[code], float8Values[code+1]
		for _, x := range []float32{low, (low + high) / 2, math.Nextafter32((low+high)/2, low),
			math.Nextafter32((low+high)/2, high), -low, -(low + high) / 2} {
			if got, want := float8Of(x), nearest(x); got != want {
				t.Errorf("%v became %#x, want %#x", x, got, want)
			}
		}
	}
	if got := float8Of(463.9); got != 0x7e {
		t.Errorf("463.9 became %#x, want 0x7e", got)
	}
}

func BenchmarkFloat8(b *testing.B) {
	const n = 1 << 16
	src := encoded(tensor.Float32, numbers(rand.New(rand.NewPCG(1, 2)), "normal", n))
	rest, out, wire := make([]byte, len(src)), make([]byte, len(src)), make([]byte, float8s{}.Bytes(tensor.Float32, n))
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(4 * n)
		for b.Loop() {
			float8s{}.Encode(tensor.Float32, wire, src, rest)
		}
	})
	b.Run("add", func(b *testing.B) {
		b.SetBytes(4 * n)
		for b.Loop() {
			float8s{}.Add(tensor.Float32, out, out, wire, 1)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(4 * n)
		for b.Loop() {
			float8s{}.Decode(tensor.Float32, out, wire, 0.5)
		}
	})
}
