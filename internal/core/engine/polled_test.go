package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/collective"
)

// deaf carries operations that never end. Each poll takes a while, as if it gave the core to other programs.
type deaf struct{}

func (deaf) Start(*collective.Arguments) collective.Op { return deaf{} }

func (deaf) Advance() (bool, error) {
	time.Sleep(5 * time.Millisecond)
	return false, nil
}

func (deaf) Can() collective.Abilities { return collective.Abilities{Polled: true} }
func (deaf) Tune(collective.Tuning)    {}
func (deaf) Moved() uint64             { return 0 }
func (deaf) Sent() collective.Sent     { return collective.Sent{} }
func (deaf) Close(error) bool          { return true }
func (deaf) Free()                     {}

// If nobody rings for an operation, the driver polls for a long time before it sleeps. A driver that waits for a lost
// rank calls Stalled all the same, because otherwise nobody asks whether that rank is alive.
func TestWhoPollsSaysThatItWaits(t *testing.T) {
	var stalled atomic.Int32
	said := make(chan struct{})
	engines := newWorld(t, 2, false, func(o *Options) {
		o.Carrier = func(Opening) (collective.Carrier, error) { return deaf{}, nil }
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

// A program may spin on Poll, or have its other operations ended by callbacks, so that no driver ever sleeps. Stalled
// is called all the same for an operation that waits for a missing rank.
func TestWhoNeverSleepsSaysThatItWaits(t *testing.T) {
	for name, busy := range map[string]func(e *Engine, own int, lone *Entry){
		"spins on Poll": func(_ *Engine, _ int, lone *Entry) {
			for !lone.Poll() {
			}
		},
		"has callbacks": func(e *Engine, own int, _ *Entry) {
			var chains sync.WaitGroup
			for c := range 4 { // so that there is always work
				chains.Go(func() {
					ended := make(chan *Error)
					for err := (*Error)(nil); err == nil; {
						op := sum(fmt.Sprint("own", c), floats(1))
						op.Set, op.Done = own, func(en *Entry) { ended <- en.Err() }
						var en *Entry
						if en, err = e.Enqueue(op); err == nil {
							err = <-ended
							en.Release()
						}
					}
				})
			}
			chains.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stalled atomic.Int32
			said := make(chan struct{})
			engines := newWorld(t, 2, true, func(o *Options) {
				o.Stalled = func(time.Duration) {
					if stalled.Add(1) == 3 {
						close(said)
					}
				}
			})
			var own [2]int
			each(engines, func(r int, e *Engine) { own[r], _ = e.AddSet([]int{0}) })
			lone := enqueue(t, engines[0], sum("of rank 0 only", floats(1)))
			go func() {
				select {
				case <-said:
				case <-time.After(limit / 2):
					t.Errorf("the waiting was told %d times in %v", stalled.Load(), limit/2)
				}
				engines[0].Abort(errors.New("enough"))
			}()
			busy(engines[0], own[0], lone)
			lone.Release()
		})
	}
}
