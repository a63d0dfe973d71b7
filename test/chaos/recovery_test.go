package chaos

import (
	"slices"
	"testing"
	"time"
)

// TestKillOneOfFour kills one worker of four, five times, each time when the last one has been
// replaced. It logs how long the survivors and the whole job take to train again.
func TestKillOneOfFour(t *testing.T) {
	j := start(t, 1, []string{"-np", "4", "--min-np", "3", "--max-np", "4"}, nil, "127.0.0.1:16")
	full := func() (workers []*journal) {
		for _, w := range j.veterans() {
			if w.size == 4 && len(w.steps) > 0 {
				workers = append(workers, w)
			}
		}
		return workers
	}
	j.await("four train", func() bool { return len(full()) == 4 })
	var replaced []time.Duration
	for range 5 {
		workers := full()
		victim := workers[j.rng.IntN(len(workers))]
		killed := time.Now()
		j.kill(victim)
		j.await("four train again", func() bool {
			together := full()
			return len(together) == 4 && !slices.ContainsFunc(together,
				func(w *journal) bool { return w.steps[len(w.steps)-1].Before(killed) })
		})
		last := killed
		for _, w := range full() {
			if at := w.steps[len(w.steps)-1]; at.After(last) {
				last = at
			}
		}
		replaced = append(replaced, last.Sub(killed).Round(time.Millisecond))
	}
	j.finish()
	slices.Sort(replaced)
	t.Logf("from a kill to the first step with the replacement: median %v, at most %v", replaced[len(replaced)/2],
		replaced[len(replaced)-1])
}
