package property

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
)

// T is a case: it draws values, and stands for a *testing.T. Only the goroutine of the property may draw and end the
// case. Any goroutine may call Errorf and Logf.
type T struct {
	random *rand.Rand // nil: draws come from replay
	replay []uint64

	drawn []uint64

	mu     sync.Mutex
	failed bool
	lines  []string // the messages and, if draws are replayed, the drawn values
}

// next draws a number below n; n = 0 stands for 2^64. At the end of a list to replay it draws zeros.
func (t *T) next(n uint64, biased bool) uint64 {
	var v uint64
	switch {
	case t.random != nil:
		v = draw(t.random, n, biased)
	case len(t.drawn) < len(t.replay):
		v = t.replay[len(t.drawn)]
		if n != 0 && v >= n {
			v = n - 1
		}
	}
	t.drawn = append(t.drawn, v)
	return v
}

// draw draws uniformly, or with a bias to the borders and to small numbers, where most errors are.
func draw(r *rand.Rand, n uint64, biased bool) uint64 {
	even := func() uint64 {
		if n == 0 {
			return r.Uint64()
		}
		return r.Uint64N(n)
	}
	if !biased {
		return even()
	}
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return n - 1
	case 2, 3:
		return min(n-1, r.Uint64()>>(64-r.IntN(1+bits.Len64(n-1))))
	}
	return even()
}

// say notes a value that was drawn, and returns it.
func say[V any](t *T, label string, v V) V {
	if t.random == nil {
		t.Logf("draw %s: %#v", label, v)
	}
	return v
}

// Int draws from low to high, both included.
func (t *T) Int(label string, low, high int) int {
	return say(t, label, low+int(t.next(uint64(high-low)+1, true)))
}

// Uint64 draws uniformly from all numbers, for example a seed.
func (t *T) Uint64(label string) uint64 {
	return say(t, label, t.next(0, false))
}

// Bool draws false or true. False is the smaller.
func (t *T) Bool(label string) bool {
	return say(t, label, t.next(2, false) == 1)
}

// Float draws from low to high.
func (t *T) Float(label string, low, high float64) float64 {
	const steps = 1 << 53
	return say(t, label, math.FMA(high-low, float64(t.next(steps+1, true))/steps, low))
}

// Pick draws an element of a list. The first is the smallest.
func Pick[V any](t *T, label string, list []V) V {
	return say(t, label, list[t.next(uint64(len(list)), false)])
}

// List draws a list of low to high elements.
func List[V any](t *T, label string, low, high int, element func(t *T) V) []V {
	list := make([]V, t.Int("length of "+label, low, high))
	for i := range list {
		list[i] = element(t)
	}
	return list
}

// Errorf marks the case as failed with a message, and goes on.
func (t *T) Errorf(format string, args ...any) { t.fail(format, args...) }

// Fatalf marks the case as failed with a message, and ends it.
func (t *T) Fatalf(format string, args ...any) {
	t.fail(format, args...)
	panic(t)
}

// Fatal is Fatalf without a format.
func (t *T) Fatal(args ...any) { t.Fatalf("%s", strings.TrimSpace(fmt.Sprintln(args...))) }

// Logf adds a message to the case.
func (t *T) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// Helper does nothing: a case has no lines of its own.
func (t *T) Helper() {}

// Failed reports whether the case has failed.
func (t *T) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *T) fail(format string, args ...any) {
	t.Logf("wrong: "+format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = true
}
