package collective

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// adasumOf combines float64 vectors, one a member, each of the given parts.
func adasumOf(t *testing.T, rng *rand.Rand, shared bool, vectors [][]float64, parts ...int) []float64 {
	t.Helper()
	g := newGroup(t, len(vectors), inproc.Options{Shared: shared})
	bufs := make([][]byte, len(vectors))
	lengths := make([]int, len(parts))
	for i, n := range parts {
		lengths[i] = 8 * n
	}
	for r, v := range vectors {
		bufs[r] = make([]byte, 8*len(v))
		for i, f := range v {
			store(bufs[r][8*i:], 8, math.Float64bits(f))
		}
	}
	g.runScheduled(t, rng, []job{{
		name:  "adasum",
		start: func(l *Lane) Op { return l.Adasum(tensor.Float64, bufs[l.rank], lengths, 1) },
		check: func(int) error { return nil },
	}})
	out := make([]float64, len(vectors[0]))
	for i := range out {
		out[i] = math.Float64frombits(load(bufs[len(bufs)-1][8*i:], 8))
	}
	return out
}

// forEachAdasum runs f for both kinds of lanes and 1 to 9 members.
func forEachAdasum(t *testing.T, f func(rng *rand.Rand, combine func(vectors [][]float64, parts ...int) []float64,
	size int)) {
	for _, shared := range []bool{true, false} {
		for size := 1; size <= 9; size++ {
			rng := random(t)
			f(rng, func(vectors [][]float64, parts ...int) []float64 {
				return adasumOf(t, rng, shared, vectors, parts...)
			}, size)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*(1+math.Abs(b)) }

func TestAdasumAddsOrthogonalVectors(t *testing.T) {
	forEachAdasum(t, func(rng *rand.Rand, combine func([][]float64, ...int) []float64, size int) {
		vectors := make([][]float64, size)
		for r := range vectors {
			vectors[r] = make([]float64, 300*size)
			for i := range 300 {
				vectors[r][300*r+i] = rng.NormFloat64()
			}
		}
		got := combine(vectors, 300*size)
		for i, f := range got {
			if want := vectors[i/300][i]; !near(f, want) {
				t.Fatalf("%d members: element %d is %v, want %v", size, i, f, want)
			}
		}
	})
}

func TestAdasumAveragesEqualVectors(t *testing.T) {
	forEachAdasum(t, func(rng *rand.Rand, combine func([][]float64, ...int) []float64, size int) {
		vectors := make([][]float64, size)
		one := normals(rng, 2500)
		for r := range vectors {
			vectors[r] = one
		}
		for i, f := range combine(vectors, 2500) {
			if !near(f, one[i]) {
				t.Fatalf("%d members: element %d is %v, want %v", size, i, f, one[i])
			}
		}
	})
}

// Vectors of zero change nothing. If all vectors are zero, the result is zero, not NaN.
func TestAdasumOfZeros(t *testing.T) {
	forEachAdasum(t, func(rng *rand.Rand, combine func([][]float64, ...int) []float64, size int) {
		vectors := make([][]float64, size)
		for r := range vectors {
			vectors[r] = make([]float64, 1500)
		}
		for i, f := range combine(vectors, 1000, 500) {
			if f != 0 {
				t.Fatalf("%d members: element %d is %v", size, i, f)
			}
		}
		who := rng.IntN(size)
		vectors[who] = normals(rng, 1500)
		for i, f := range combine(vectors, 1000, 500) {
			if f != vectors[who][i] {
				t.Fatalf("%d members, %d not zero: element %d is %v, want %v", size, who, i, f, vectors[who][i])
			}
		}
	})
}

// If all vectors are multiplied by a power of two, so is the result, to the bit. The result of two parallel vectors of
// any lengths is their mean.
func TestAdasumFollowsTheScale(t *testing.T) {
	forEachAdasum(t, func(rng *rand.Rand, combine func([][]float64, ...int) []float64, size int) {
		vectors, larger := make([][]float64, size), make([][]float64, size)
		for r := range vectors {
			vectors[r] = normals(rng, 1100)
			larger[r] = make([]float64, 1100)
			for i, f := range vectors[r] {
				larger[r][i] = 1024 * f
			}
		}
		small, large := combine(vectors, 1100), combine(larger, 1100)
		for i := range small {
			if 1024*small[i] != large[i] {
				t.Fatalf("%d members: element %d: %v and %v", size, i, small[i], large[i])
			}
		}
	})
	rng := random(t)
	x := normals(rng, 1100)
	y := make([]float64, len(x))
	for i := range x {
		y[i] = 1000 * x[i]
	}
	for i, f := range adasumOf(t, rng, true, [][]float64{x, y}, 1100) {
		if want := (x[i] + y[i]) / 2; !near(f, want) {
			t.Fatalf("element %d is %v, want %v", i, f, want)
		}
	}
}

// Each tensor of a fused buffer gets the same bits as alone.
func TestAdasumKeepsPartsApart(t *testing.T) {
	forEachAdasum(t, func(rng *rand.Rand, combine func([][]float64, ...int) []float64, size int) {
		parts := []int{5, 0, 2049, 1, 700, 1024, 3}
		total := 0
		for _, n := range parts {
			total += n
		}
		vectors, part := make([][]float64, size), make([][]float64, size)
		for r := range vectors {
			vectors[r] = normals(rng, total)
		}
		fused := combine(vectors, parts...)
		at := 0
		for _, n := range parts {
			for r := range vectors {
				part[r] = vectors[r][at : at+n]
			}
			for i, f := range combine(part, n) {
				if fused[at+i] != f {
					t.Fatalf("%d members, segment of %d at %d: element %d is %v fused and %v by itself", size, n, at, i,
						fused[at+i], f)
				}
			}
			at += n
		}
	})
}

// A hand-made pair, and the order of three: the third is folded into the first.
func TestAdasumByHand(t *testing.T) {
	rng := random(t)
	// x·y = 2, |x|² = 4, |y|² = 2: (1-2/8) x + (1-2/4) y.
	x, y := []float64{2, 0}, []float64{1, 1}
	got := adasumOf(t, rng, true, [][]float64{x, y}, 2)
	if got[0] != 2 || got[1] != 0.5 {
		t.Errorf("two members: %v", got)
	}
	// Members 0 and 2 make (2, 0.5), which combines with (0, 4): products 2, 4.25, 16.
	got = adasumOf(t, rng, false, [][]float64{x, {0, 4}, y}, 2)
	cx, cy := 1-2/(2*4.25), 1-2/(2*16.0)
	if !near(got[0], cx*2) || !near(got[1], cx*0.5+cy*4) {
		t.Errorf("three members: %v, want %v, %v", got, cx*2, cx*0.5+cy*4)
	}
}

func normals(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	return v
}
