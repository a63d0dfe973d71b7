package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/collective"
)

// deaf carries operations that never end, and of which each poll takes a while, as where the
// core is given to other programs at each.
type deaf struct{}

func (deaf) Start(*collective.Arguments) collective.Op { return deaf{} }

func (deaf) Advance() (bool, error) {
	time.Sleep(5 * time.Millisecond)
	return false, nil
}

func (deaf) Can() collective.Abilities { return collective.Abilities{Polled: true} }
func (deaf) Tune(collective.Tuning)    {}
func (deaf) Moved() uint64             { return 0 }
func (deaf) Close(error) bool          { return true }
func (deaf) Free()                     {}

// An operation that nobody rings for is polled for long before the driver sleeps. Who waits for a lost rank
// says so all the same, however long that is: else nobody asks whether the rank is there.
func TestWhoPollsSaysThatItWaits(t *testing.T) {
	var stalled atomic.Int32
	said := make(chan struct{})
	engines := newWorld(t, 2, false, func(o *Options) {
		o.Carrier = func(int, uint32, []int) (collective.Carrier, error) { return deaf{}, nil }
		o.Stalled = func(time.Duration) {
			if stalled.Add(1) == 8 {
				close(said)
			}
		}
	})
	began := time.Now()
	go func() {
		select {
		case <-said:
		case <-time.After(limit / 2):
		}
		engines[0].Abort(errors.New("enough"))
	}()
	each(engines, func(r int, e *Engine) {
		if err := do(t, e, sum("x", floats(1))); err == nil {
			t.Errorf("rank %d: a sum that never ends has ended", r)
		}
	})
	if d := time.Since(began); d > limit/2 {
		t.Errorf("the waiting was told %d times in %v", stalled.Load(), d)
	}
}
