package table

import (
	"math/rand/v2"
	"testing"
)

// TestHottest: the share of hot keys is found among many others, is about 0 if all keys are alike, and is of late.
func TestHottest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	table := New(options(SGD, 1))
	defer table.Close()
	batches := func(n int, share float64) float64 {
		keys := make([]int64, 3000)
		for range n {
			for i := range keys {
				keys[i] = rng.Int64()
				switch r := rng.Float64(); {
				case r < share:
					keys[i] = rng.Int64N(5)
				case r > 0.95:
					keys[i] = -1
				}
			}
			table.NoteLookups(keys, Padding{true, -1})
		}
		return table.Hottest()
	}
	for _, want := range []float64{0, 0.4, 0.1, 0.8} {
		if got := batches(2000, want); got < want-0.05 || got > want+0.1 {
			t.Errorf("the share is %v, want %v", got, want)
		}
	}
}
