package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// counting is a network that counts how often its engine polls it.
type counting struct {
	transport.Network
	looks atomic.Int64
}

func (c *counting) Err() error {
	c.looks.Add(1)
	return c.Network.Err()
}

// A thread that waits long for a late rank, in slices of any length, spins once, and then only sleeps. It gets the
// result when the late rank has come.
func TestALongWaitSpinsOnce(t *testing.T) {
	var engines []*Engine
	var first *counting
	for r, n := range inproc.NewWorld(2, inproc.Options{Shared: true, Cards: 8}) {
		if r == 0 {
			first = &counting{Network: n}
			n = first
		}
		e, err := New(n, Options{Rank: r, Size: 2, Spin: true})
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	defer each(engines, func(_ int, e *Engine) { e.Shutdown(limit) })
	op := func() *Op {
		op := sum("x", make([]byte, 4))
		op.WillWait = true
		return op
	}
	en, err := engines[0].Enqueue(op())
	if err != nil {
		t.Fatal(err)
	}
	defer en.Release()
	const slices, long = 10, 40 * time.Millisecond // twice what makes a wait a long one
	for range slices {
		if engines[0].Wait(en, long) {
			t.Fatal("done without the other rank")
		}
	}
	if n := first.looks.Load(); n > 2000+slices*200 {
		t.Errorf("%d polls in %d slices", n, slices)
	}
	other, err := engines[1].Enqueue(op())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	each(engines, func(r int, e *Engine) {
		if !e.Wait([]*Entry{en, other}[r], limit) {
			t.Errorf("rank %d is not done", r)
		}
	})
}
