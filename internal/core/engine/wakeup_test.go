package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// soon is the time in which what has been woken goes on, even on a busy machine. It is less than the half second after
// which a sleeping driver looks again by itself, and the second after which a parked waiter does.
const soon = 300 * time.Millisecond

// interruptedBell calls amid just before the next Arm.
type interruptedBell struct {
	transport.Bell
	amid chan func()
}

func (b *interruptedBell) Arm() uint32 {
	select {
	case f := <-b.amid:
		f()
	default:
	}
	return b.Bell.Arm()
}

type interruptedNetwork struct {
	transport.Network
	bell *interruptedBell
}

func (n *interruptedNetwork) Bell() transport.Bell { return n.bell }

// newInterruptedWorld makes the engines of two ranks, and the bell of rank 0.
func newInterruptedWorld(t *testing.T) ([]*Engine, *interruptedBell) {
	t.Helper()
	nets := inproc.NewWorld(2, inproc.Options{Shared: true, Cards: 64, ChunkBytes: 4096})
	bell := &interruptedBell{Bell: nets[0].Bell(), amid: make(chan func(), 1)}
	nets[0] = &interruptedNetwork{nets[0], bell}
	engines := make([]*Engine, len(nets))
	for r := range engines {
		var err error
		if engines[r], err = New(nets[r], Options{Rank: r, Size: len(nets), CacheCapacity: 64}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { each(engines, func(_ int, e *Engine) { e.Shutdown(limit) }) })
	return engines, bell
}

// An operation whose input nobody announces is submitted just before the driver arms the bell: the driver asks for the
// input again and again, and does not sleep for its longest time.
func TestAnInputIsAwaitedFromTheLastMoment(t *testing.T) {
	engines, bell := newInterruptedWorld(t)
	first := make(chan struct{})
	go func() { // rank 0's driver, which waits for this one
		defer close(first)
		do(t, engines[0], sum("first", floats(1)))
	}()
	other := make(chan struct{})
	go func() { // rank 1 rings for nothing any more
		defer close(other)
		if err := do(t, engines[1], sum("input", floats(1))); err != nil {
			t.Error(err)
		}
	}()
	time.Sleep(20 * time.Millisecond)
	submitted := make(chan *Entry, 1)
	began := time.Now()
	bell.amid <- func() {
		began = time.Now()
		op := sum("input", floats(1))
		op.WillWait = true
		op.Ready = func() bool { return time.Since(began) > time.Millisecond }
		submitted <- enqueue(t, engines[0], op)
	}
	bell.Ring() // ends a sleep under way, so that another one begins
	en := <-submitted
	<-other
	if took := time.Since(began); took > soon {
		t.Errorf("an operation whose input was ready after 1 ms took %v", took)
	}
	if err := finish(t, engines[0], en); err != nil {
		t.Error(err)
	}
	en.Release()
	if err := do(t, engines[1], sum("first", floats(1))); err != nil {
		t.Error(err)
	}
	<-first
}

// slipping is a carrier that never ends an operation, and panics when it is closed.
type slipping struct{ deaf }

func (slipping) Start(*collective.Arguments) collective.Op { return deaf{} }
func (slipping) Close(error) bool                          { panic("slipped") }

// A carrier's panic at the end of the engine does not keep the operations from their error.
func TestAPanicInCloseEndsTheOperations(t *testing.T) {
	engines := makeWorld(t, 2, false, func(o *Options) {
		o.Carrier = func(Opening) (collective.Carrier, error) { return slipping{}, nil }
	})
	entries := make([]*Entry, len(engines))
	for r, e := range engines {
		entries[r] = enqueue(t, e, sum("x", floats(1)))
	}
	engines[0].Abort(errors.New("enough"))
	each(engines, func(r int, e *Engine) {
		if !e.Wait(entries[r], limit) {
			t.Errorf("rank %d still waits", r)
			return
		}
		if err := entries[r].Err(); err == nil {
			t.Errorf("rank %d: no error", r)
		}
		entries[r].Release()
		e.Shutdown(limit)
		if n := e.Pending(); n != 0 {
			t.Errorf("rank %d: %d operations are pending", r, n)
		}
	})
}
