package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/collective"
)

// busy carries operations that move something at each poll, and never end.
type busy struct{ moved atomic.Uint64 }

func (b *busy) Start(*collective.Arguments) collective.Op { return b }

func (b *busy) Advance() (bool, error) {
	b.moved.Add(1)
	return false, nil
}

func (b *busy) Can() collective.Abilities { return collective.Abilities{} }
func (b *busy) Tune(collective.Tuning)    {}
func (b *busy) Moved() uint64             { return b.moved.Load() }
func (b *busy) Sent() collective.Sent     { return collective.Sent{} }
func (b *busy) Close(error) bool          { return true }
func (b *busy) Free()                     {}

// A driver that makes progress at every look returns at its deadline all the same: in Wait, and in Shutdown.
func TestADeadlineHoldsWhileWorkFlows(t *testing.T) {
	engines := makeWorld(t, 2, true, func(o *Options) {
		o.Carrier = func(Opening) (collective.Carrier, error) { return new(busy), nil }
	})
	const short = 20 * time.Millisecond
	returned := make(chan string, 2*len(engines))
	go each(engines, func(r int, e *Engine) {
		op := sum("x", floats(1))
		op.WillWait = true
		en, err := e.Enqueue(op)
		if err != nil {
			t.Error(err)
			return
		}
		defer en.Release()
		if e.Wait(en, short) {
			t.Errorf("rank %d: an operation that never ends has ended", r)
		}
		returned <- "Wait"
		e.Shutdown(short)
		returned <- "Shutdown"
	})
	for i := range 2 * len(engines) {
		select {
		case <-returned:
		case <-time.After(limit):
			each(engines, func(_ int, e *Engine) { e.Abort(errors.New("enough")) })
			t.Fatalf("%d of %d calls have returned after %v", i, 2*len(engines), limit)
		}
	}
}
