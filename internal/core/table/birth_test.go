package table

import (
	"math"
	"testing"
)

// TestQuantiles compares the table with the error function, which finds a wrong or missing number.
func TestQuantiles(t *testing.T) {
	for octave := range octaves {
		for step := range 64 {
			m := uint64(1)<<(15+octave) + uint64(step)<<(9+octave)
			if octave == 0 {
				m = uint64(step) << 10
			}
			if m == 0 {
				continue
			}
			z := float64(quantiles[octave*64+step]) / (1 << 24)
			if p := math.Erfc(z / math.Sqrt2); math.Abs(p*(1<<31)/float64(m)-1) > 1e-5 {
				t.Fatalf("octave %d, step %d: more than %v has probability %v, want %v", octave, step, z, p,
					float64(m)/(1<<31))
			}
		}
	}
	if last := quantiles[len(quantiles)-1]; last != 0 {
		t.Errorf("everything is more than %d", last)
	}
}

// TestQuantileIsMonotonic goes through the borders of all steps.
func TestQuantileIsMonotonic(t *testing.T) {
	last := int32(math.MaxInt32)
	for m := uint64(0); m < 1<<31; m += 511 {
		q := quantile(uint32(m))
		if q > last || q < 0 {
			t.Fatalf("at %d it is %d, after %d", m, q, last)
		}
		last = q
	}
	if q := quantile(1<<31 - 1); q > 1<<10 {
		t.Errorf("it ends with %d", q)
	}
}

func TestNewRowsHaveTheirDistribution(t *testing.T) {
	for _, c := range []struct {
		init                    Init
		deviation, kurtosis, to float64
	}{{Normal, 0.5, 3, math.Inf(1)}, {Uniform, 0.5 / math.Sqrt(3), 1.8, 0.5}, {Zeros, 0, 0, 0}} {
		b := newBirth(&Options{Name: "t", Init: c.init, Scale: 0.5})
		w := make([]float32, 7)
		var n, sum, squares, fourths, tails float64
		for key := range int64(100000) {
			b.fill(key-5, w)
			for _, x := range w {
				if x := float64(x); math.Abs(x) > c.to {
					t.Fatalf("%s: %v", c.init, x)
				} else {
					n, sum, squares, fourths = n+1, sum+x, squares+x*x, fourths+x*x*x*x
					if math.Abs(x) > 4*0.5 {
						tails++
					}
				}
			}
		}
		deviation := math.Sqrt(squares / n)
		if math.Abs(sum/n) > 0.003 || math.Abs(deviation-c.deviation) > 0.002 {
			t.Errorf("%s: mean %v, standard deviation %v", c.init, sum/n, deviation)
		}
		if c.init != Zeros && math.Abs(fourths/n/math.Pow(deviation, 4)-c.kurtosis) > 0.05 {
			t.Errorf("%s: kurtosis %v", c.init, fourths/n/math.Pow(deviation, 4))
		}
		if want := n * math.Erfc(4/math.Sqrt2); c.init == Normal && math.Abs(tails-want) > 4*math.Sqrt(want) {
			t.Errorf("%v of %v are beyond 4 deviations, want %v", tails, n, want)
		}
	}
}

// TestBirthIsForEver holds numbers that every build has to make.
func TestBirthIsForEver(t *testing.T) {
	for _, c := range []struct {
		o    Options
		key  int64
		want []uint32
	}{
		{Options{Name: "users", Seed: 7, Init: Normal, Scale: 0.25}, 12345678901234,
			[]uint32{0xbe89c341, 0xbddd4da2, 0xbe8d4b82}},
		{Options{Name: "users", Seed: 7, Init: Uniform, Scale: 0.25}, -3,
			[]uint32{0x3e08bf39, 0x3cb2dfea, 0x3e7fa459}},
	} {
		b := newBirth(&c.o)
		w := make([]float32, 3)
		b.fill(c.key, w)
		got := []uint32{math.Float32bits(w[0]), math.Float32bits(w[1]), math.Float32bits(w[2])}
		for i := range got {
			if len(c.want) != len(got) || got[i] != c.want[i] {
				t.Errorf("%+v: key %d has %v, %#x", c.o, c.key, w, got)
				break
			}
		}
	}
}

// TestNeighboursDiffer: keys, tables and seeds that are close have rows that have nothing in common.
func TestNeighboursDiffer(t *testing.T) {
	seen := map[float32]string{}
	for _, o := range []Options{{Name: "a"}, {Name: "b"}, {Name: "ab"}, {Name: "a", Seed: 1}, {Name: "a", Seed: 2}} {
		o.Init, o.Scale = Normal, 1
		b := newBirth(&o)
		for key := int64(-20); key <= 20; key++ {
			w := make([]float32, 5)
			b.fill(key, w)
			for _, x := range w {
				if other, taken := seen[x]; taken {
					t.Fatalf("%v is in a row of %+v and in one of %s", x, o, other)
				}
				seen[x] = o.Name
			}
		}
	}
}
