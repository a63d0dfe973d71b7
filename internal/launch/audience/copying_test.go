package audience

import (
	"testing"
	"time"
)

// TestCopyingRate checks that the measurement ends soon, and that its result is one of memory.
func TestCopyingRate(t *testing.T) {
	for _, ranks := range []int{0, 1, 2, 100} {
		rate, taken := 0.0, time.Duration(0)
		for try := 0; rate == 0 && try < 10; try++ { // a busy machine may give the memory too late
			began := time.Now()
			rate = copyingRate(ranks)
			taken = time.Since(began)
		}
		t.Logf("%d ranks: %.1f GB/s, after %v", ranks, rate/1e9, taken)
		if rate < 1e8 || rate > 1e13 || taken < copyingTime || taken > 30*time.Second {
			t.Errorf("%d ranks: %.3g bytes a second, after %v", ranks, rate, taken)
		}
	}
}
