package autotune

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/property"
)

func params() []Param {
	return []Param{
		{Name: "threshold", Low: 1, High: 256, Log: true, Default: 128},
		{Name: "cycle", Low: 0, High: 5, Default: 0},
		{Name: "hierarchical", Low: 0, High: 1, Switch: true, Default: 1},
	}
}

// run lets a search go on until it has finished, and counts the points.
func run(t *testing.T, s *Search, score func(Point) float64) int {
	t.Helper()
	points := 0
	for range 10000 {
		if s.Finished() {
			return points
		}
		if s.Observe(score(s.Current())) {
			points++
		}
	}
	t.Fatal("the search does not finish")
	return 0
}

// TestFindsTheBest gives scores with one peak, with noise, and expects a point
// near it.
func TestFindsTheBest(t *testing.T) {
	for seed := range uint64(5) {
		noise := rand.New(rand.NewPCG(seed, 1))
		peak := func(p Point) float64 {
			a, b := math.Log2(p[0])-4, p[1]-2 // at 16 MB and 2 ms
			s := 1000 * math.Exp(-(a*a/8 + b*b/6))
			if p[2] == 1 {
				s *= 0.9
			}
			return s
		}
		s, err := NewSearch(Options{Params: params(), Warmup: 3, Points: 20, Noise: 0.8, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		n := run(t, s, func(p Point) float64 { return peak(p) * (1 + 0.02*noise.NormFloat64()) })
		if got := peak(s.Current()); got < 850 {
			t.Errorf("seed %d: %v scores %.0f, the best is 1000 and the defaults %.0f", seed, s.Current(), got,
				peak(s.defaults()))
		}
		if want := 3 + 20 + 2*confirmations; n != want {
			t.Errorf("seed %d: %d points, want %d", seed, n, want)
		}
	}
}

// TestStaysWithDefaults: if only luck makes a difference, or if the machine gets slower, a search must not end with a
// worse point.
func TestStaysWithDefaults(t *testing.T) {
	for seed := range uint64(10) {
		noise := rand.New(rand.NewPCG(seed, 2))
		calm := true // while the trials run; afterwards their result turns out to be luck
		s, err := NewSearch(Options{Params: params(), Points: 10, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		defaults := s.defaults()
		run(t, s, func(p Point) float64 {
			calm = calm && len(s.Trials()) < 10
			same := true
			for i := range p {
				same = same && p[i] == defaults[i]
			}
			switch {
			case same:
				return 100
			case calm:
				return 100 + 5*noise.NormFloat64()
			default:
				return 90
			}
		})
		for i, v := range s.Current() {
			if v != defaults[i] {
				t.Fatalf("seed %d: ends at %v, want the defaults %v", seed, s.Current(), defaults)
			}
		}
	}
}

func TestEveryPointIsInRange(t *testing.T) {
	property.Check(t, func(t *property.T) {
		s, err := NewSearch(Options{Params: params(), Points: 7, Noise: t.Float("noise", 0, 10),
			Seed: t.Uint64("seed")})
		if err != nil {
			t.Fatal(err)
		}
		same := t.Bool("equal scores")
		for !s.Finished() {
			for i, v := range s.Current() {
				p := params()[i]
				if v < p.Low || v > p.High || math.IsNaN(v) || p.Switch && v != p.Low && v != p.High {
					t.Fatalf("%s is %v, outside %v to %v", p.Name, v, p.Low, p.High)
				}
			}
			score := 1.0
			if !same {
				score = t.Float("score", 0, 1e6)
			}
			s.Observe(score)
		}
	})
}

func TestUnitAndValueAreInverse(t *testing.T) {
	for _, p := range params() {
		for _, v := range []float64{p.Low, p.Default, p.High} {
			if got := p.value(p.unit(v)); math.Abs(got-v) > 1e-9*max(1, v) {
				t.Errorf("%s: %v becomes %v", p.Name, v, got)
			}
		}
	}
}

func TestRefusesWhatCannotBeTuned(t *testing.T) {
	for name, ps := range map[string][]Param{
		"nothing":         nil,
		"empty range":     {{Name: "a", Low: 1, High: 1, Default: 1}},
		"log from zero":   {{Name: "a", Low: 0, High: 1, Log: true}},
		"default outside": {{Name: "a", Low: 0, High: 1, Default: 2}},
	} {
		if _, err := NewSearch(Options{Params: ps}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestProcessPassesThroughItsPoints: without noise the process is certain at its points, and less certain farther away.
func TestProcessPassesThroughItsPoints(t *testing.T) {
	at := [][]float64{{0.1}, {0.5}, {0.8}}
	scores := []float64{3, 7, 5}
	p, err := condition(at, scores, make([]float64, 3))
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range at {
		mean, deviation := p.predict(x)
		if got := mean*p.scale + p.mean; math.Abs(got-scores[i]) > 1e-3 || deviation > 1e-2 {
			t.Errorf("at %v: %v ± %v, want %v", x, got, deviation, scores[i])
		}
	}
	if _, far := p.predict([]float64{0}); far < 1e-3 {
		t.Errorf("the process is certain (±%v) where it has seen nothing", far)
	}
}

func TestMeter(t *testing.T) {
	m := NewMeter(2)
	at := time.Unix(100, 0)
	step := func(name string, bytes int) (Sample, bool) {
		at = at.Add(10 * time.Microsecond)
		return m.Executed(name, bytes, at)
	}
	for range 2 {
		for _, name := range []string{"a", "b"} {
			if _, ok := step(name, 100); ok {
				t.Fatal("a sample ends too early")
			}
		}
	}
	sample, ok := step("a", 100) // the third round of a
	if want := (Sample{500.0 / 40, 500}); !ok || sample != want {
		t.Fatalf("sample %v (%v), want %v", sample, ok, want)
	}
	for i := range 3 * maxNames { // names that never come back
		if _, ok := m.Executed(string(rune(i))+"x", 1, at); ok {
			t.Fatal("a sample ends although no tensor has come back")
		}
	}
	if len(m.seen) > maxNames {
		t.Fatalf("the meter remembers %d names", len(m.seen))
	}
}
