package reduce

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// referenceDots follows the doc comment of Dots.
func referenceDots(dt tensor.DType, x, y []byte) (products [3]float64) {
	var sums [3][16]float64
	size := dt.Size()
	for i := range len(x) / size {
		u, v := floatOf(dt, element(x[i*size:(i+1)*size])), floatOf(dt, element(y[i*size:(i+1)*size]))
		for k, p := range [3]float64{u * v, u * u, v * v} {
			sums[k][i%16] += p
		}
	}
	for k, s := range sums {
		for _, n := range []int{8, 4, 2, 1} {
			for i := range n {
				s[i] += s[i+n]
			}
		}
		products[k] = s[0]
	}
	return products
}

func TestDots(t *testing.T) {
	for _, dt := range floats {
		t.Run(dt.String(), func(t *testing.T) {
			rnd := source(t)
			checkDots(t, rnd, dt, callBytes/2/dt.Size()+333)
			for n := range 3*wideElements + 5 {
				checkDots(t, rnd, dt, n)
			}
		})
	}
}

// checkDots draws two vectors of n elements. They have few special values, because otherwise every sum would be a NaN.
func checkDots(t *testing.T, rnd *rand.Rand, dt tensor.DType, n int) {
	x, y := aligned(n*dt.Size(), rnd.IntN(64)), aligned(n*dt.Size(), rnd.IntN(64))
	for i := range n {
		putElement(x[i*dt.Size():(i+1)*dt.Size()], floatBits(dt, rnd.NormFloat64()))
		putElement(y[i*dt.Size():(i+1)*dt.Size()], floatBits(dt, rnd.NormFloat64()*1e-3))
	}
	if n > 0 && rnd.IntN(3) == 0 {
		i := rnd.IntN(n)
		putElement(x[i*dt.Size():(i+1)*dt.Size()], special[dt][rnd.IntN(len(special[dt]))])
	}
	want := referenceDots(dt, x, y)
	for _, v := range variants() {
		var got [3]float64
		got[0], got[1], got[2] = dotsWith(v, dt, x, y)
		for k := range got {
			if math.Float64bits(got[k]) != math.Float64bits(want[k]) && !(math.IsNaN(got[k]) && math.IsNaN(want[k])) {
				t.Fatalf("%v: product %d of %d elements is %v, want %v", v, k, n, got[k], want[k])
			}
		}
	}
}

func TestBlend(t *testing.T) {
	for _, dt := range floats {
		t.Run(dt.String(), func(t *testing.T) {
			rnd := source(t)
			for n := range 3*wideElements + 5 {
				checkBlend(t, rnd, dt, n)
			}
			if dt == tensor.Float64 { // fewest elements
				checkBlend(t, rnd, dt, callBytes/2/dt.Size()+333)
			}
		})
	}
}

func checkBlend(t *testing.T, rnd *rand.Rand, dt tensor.DType, n int) {
	t.Helper()
	size := dt.Size()
	x, y := fill(rnd, dt, n, rnd.IntN(64)), fill(rnd, dt, n, rnd.IntN(64))
	for _, c := range [][2]float64{{1, 1}, {rnd.Float64(), rnd.Float64() - 0.5}, {0x1p-3, 0x1p-11},
		{1e-30, math.Inf(1)}} {
		want := make([]byte, len(x))
		for i := range n {
			u, v := floatOf(dt, element(x[i*size:(i+1)*size])), floatOf(dt, element(y[i*size:(i+1)*size]))
			f := float64(c[0]*u) + float64(c[1]*v)
			bits := floatBits(dt, f)
			if size == 2 {
				bits = nearest16(dt, f)
			}
			putElement(want[i*size:(i+1)*size], bits)
		}
		for _, v := range variants() {
			got, intact := guarded(len(x), rnd.IntN(64))
			copy(got, x)
			before := bytes.Clone(y)
			blendWith(v, dt, got, y, c[0], c[1])
			requireEqual(t, dt, fmt.Sprintf("%v, factors %v", v, c), got, want, [][]byte{x, y})
			if !intact() || !bytes.Equal(before, y) {
				t.Fatalf("%v: wrote beside the result", v)
			}
		}
	}
}

// nearest16 finds the 16-bit float nearest f, of two the even one, among those close to the float32 nearest f.
func nearest16(dt tensor.DType, f float64) uint64 {
	best := floatBits(dt, f)
	if f != f || math.IsInf(f, 0) {
		return best
	}
	inf := floatBits(dt, math.Inf(1))
	beyond := math.Ldexp(1, 16) // the next value after the largest number
	if dt == tensor.BFloat16 {
		beyond = math.Ldexp(1, 128)
	}
	value := func(x uint64) float64 {
		if x&0x7fff == inf {
			return math.Copysign(beyond, floatOf(dt, x))
		}
		return floatOf(dt, x)
	}
	for _, c := range []uint64{best - 1, best + 1} {
		if c&0x7fff > inf || c&0x8000 != best&0x8000 {
			continue
		}
		d, least := math.Abs(value(c)-f), math.Abs(value(best)-f)
		if d < least || d == least && c&1 == 0 {
			best = c
		}
	}
	return best
}

// Rounding a float64 to 16 bits through oddFloat32 rounds it once, also if the nearest float32 is half way between two
// 16-bit floats.
func TestRoundingOnce(t *testing.T) {
	rnd := source(t)
	for _, dt := range floats[:2] {
		top := floatBits(dt, math.Inf(1))
		var values []float64
		for range 20_000 {
			x := rnd.Uint64N(top - 1)
			h, next := floatOf(dt, x), floatOf(dt, x+1)
			half := (h + next) / 2
			values = append(values, half, math.Nextafter(half, 0), math.Nextafter(half, 1e300), -half,
				h+(next-h)*rnd.Float64())
		}
		values = append(values, 0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.MaxFloat64,
			math.SmallestNonzeroFloat64, math.NaN())
		got := make([]byte, 2*len(values))
		storeDoublesInBlocks(dt, got, values)
		for i, f := range values {
			if x, want := element(got[2*i:2*i+2]), nearest16(dt, f); x != want && f == f {
				t.Fatalf("%v: %v becomes %v, nearest is %v", dt, f, floatOf(dt, x), floatOf(dt, want))
			}
		}
	}
}

func storeDoublesInBlocks(dt tensor.DType, dst []byte, src []float64) {
	for i := 0; i < len(src); i += blockLen {
		storeDoubles(dt, dst[2*i:], src[i:min(i+blockLen, len(src))])
	}
}
