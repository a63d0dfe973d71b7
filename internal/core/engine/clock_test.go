package engine

import (
	"strings"
	"testing"
	"time"
)

// A moment is a monotonic time near the wall clock's, so that waits are measured right after the clock has been set.
func TestMomentIsMonotonic(t *testing.T) {
	before := time.Now()
	m := thisMoment()
	at := m.time()
	if !strings.Contains(at.String(), " m=") {
		t.Errorf("%v has no monotonic time", at)
	}
	if at.Before(before) || time.Since(at) < 0 {
		t.Errorf("%v is not between %v and now", at, before)
	}
	if wall := time.Duration(time.Now().UnixNano() - int64(m)); wall < -time.Second || wall > time.Minute {
		t.Errorf("the moment is %v away from the wall clock", wall)
	}
}

// The times of the operations for which a rank waits are monotonic.
func TestWaitsAreMonotonic(t *testing.T) {
	engines := newWorld(t, 2, true, func(o *Options) { o.MainThread = func() bool { return true } })
	op := sum("x", floats(1))
	op.HoldsCaller = true
	en := enqueue(t, engines[0], op)
	for _, w := range engines[0].Waiting() {
		if !strings.Contains(w.Since.String(), " m=") || !strings.Contains(w.Blocked.String(), " m=") {
			t.Errorf("submitted at %v, blocks the caller since %v: no monotonic times", w.Since, w.Blocked)
		}
	}
	if err := do(t, engines[1], sum("x", floats(1))); err != nil {
		t.Error(err)
	}
	if err := finish(t, engines[0], en); err != nil {
		t.Error(err)
	}
	en.Release()
}
