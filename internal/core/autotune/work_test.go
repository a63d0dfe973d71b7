package autotune

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestOtherWorkIsNotCompared lets a job train and validate in turn, for a random number of steps. A step of either
// takes longer by the cycle time, so nothing is better than the defaults, but a tensor of validation has a
// hundred-thousandth of the bytes. A search that compared both would prefer the points that it tried while the job
// trained.
func TestOtherWorkIsNotCompared(t *testing.T) {
	for _, steps := range [][2]int{{50, 50}, {100, 100}} {
		for seed := range uint64(16) {
			random := rand.New(rand.NewPCG(seed, 7))
			s, err := NewSearch(Options{Params: params()[:2], Warmup: 3, Points: 7, Noise: 0.8, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			var work Work
			m := NewMeter(10)
			now := time.Unix(100, 0)
			validating, left := 1, 0
			for n := 0; !s.Finished(); n++ {
				if n > 20000 {
					t.Fatalf("%v, seed %d: no end", steps, seed)
				}
				if left == 0 {
					validating = 1 - validating
					left = steps[validating]/2 + 1 + random.IntN(steps[validating])
				}
				left--
				name, bytes, takes := "gradients", 1<<20, 500*time.Microsecond
				if validating == 1 {
					name, bytes, takes = "accuracy", 4, 15*time.Microsecond
				}
				now = now.Add(time.Duration(float64(takes)*(1+0.1*random.Float64())) +
					time.Duration(s.Current()[1]*float64(time.Millisecond)))
				sample, ok := m.Executed(name, bytes, now)
				switch {
				case !ok:
				case !work.Alike(sample.Bytes, len(s.Trials()) == 0):
					if work.Lost() {
						s.GiveUp()
					}
				case s.Observe(sample.Score):
					m.Reset()
				}
			}
			if held := s.Current()[1]; held > 0.1 {
				t.Errorf("%v, seed %d: tensors are held back for %.2f ms", steps, seed, held)
			}
		}
	}
}

// TestWorkIsLost: a search whose main work does not come back soon ends with the defaults. A search that sees its main
// work as often as other work goes on.
func TestWorkIsLost(t *testing.T) {
	var w Work
	if !w.Alike(1, true) || !w.Alike(1000, true) || !w.Alike(10, true) {
		t.Fatal("a sample is refused while learning")
	}
	for bytes, want := range map[int64]bool{499: false, 500: true, 1000: true, 2001: true, 2002: false, 0: false} {
		if got := w.Alike(bytes, false); got != want {
			t.Errorf("%d bytes beside 1000 count as alike: %v", bytes, got)
		}
	}
	w.alike, w.others = 0, 0
	for range 5 * maxOther {
		w.Alike(1000, false)
		if w.Alike(4, false); w.Lost() {
			t.Fatal("lost although half of the samples are alike")
		}
	}
	n := 0
	for ; !w.Lost(); n++ {
		w.Alike(4, false)
	}
	if n != maxOther+1 {
		t.Errorf("lost after %d samples, want %d", n, maxOther+1)
	}
	s, err := NewSearch(Options{Params: params(), Points: 5})
	if err != nil {
		t.Fatal(err)
	}
	for len(s.Trials()) < 3 {
		s.Observe(float64(len(s.Trials())))
	}
	if s.GiveUp(); !s.Finished() || s.Current()[1] != 0 || s.Best().Point[1] != 0 {
		t.Errorf("given up: finished %v at %v, the best is %v", s.Finished(), s.Current(), s.Best())
	}
}
