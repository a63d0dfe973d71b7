package engine

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
)

// latecomer opens the lane of a set only when it may.
type latecomer struct {
	*shm.Network
	may chan struct{}
}

func (n *latecomer) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	l, err := n.Network.OpenLane(id, incarnation, members)
	if id != 0 {
		<-n.may
	}
	return l, err
}

// Rank 1's driver sleeps amid the world's collective, and hears only of what goes on in it, when another thread adds
// the lane of a set. It then hears of the set's operations, too.
func TestALaneAddedAmidACollective(t *testing.T) {
	const size = 3
	late := &latecomer{may: make(chan struct{})}
	engines, errs := make([]*Engine, size), make([]error, size)
	var opening sync.WaitGroup
	for r := range size {
		opening.Go(func() {
			n, err := shm.Open(t.Context(), shm.Config{Rank: r, Size: size, Key: []byte("secret"), Job: t.Name(),
				Timeout: limit, Cards: 16})
			if errs[r] = err; err != nil {
				return
			}
			var network transport.Network = n
			if r == 1 {
				late.Network, network = n, late
			}
			engines[r], errs[r] = New(network, Options{Rank: r, Size: size, CacheCapacity: 16})
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	defer each(engines, func(_ int, e *Engine) { e.Shutdown(limit) })
	for range 2 { // the second one is agreed on by its card
		each(engines, func(_ int, e *Engine) { do(t, e, sum("world", floats(1))) })
	}

	var adding sync.WaitGroup
	ids := make([]int, size)
	for r, e := range engines {
		adding.Go(func() {
			var err error
			if ids[r], err = e.AddSet([]int{0, 1}); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // rank 1 opens its lane
	op := sum("world", floats(1))
	op.WillWait = true
	last := enqueue(t, engines[2], op) // rank 2 does not drive for it yet
	var waiting sync.WaitGroup
	for _, e := range engines[:2] {
		waiting.Go(func() { do(t, e, sum("world", floats(1))) })
	}
	time.Sleep(50 * time.Millisecond) // rank 1's driver sleeps
	close(late.may)
	adding.Wait()
	time.Sleep(20 * time.Millisecond)
	each(engines[:2], func(r int, e *Engine) {
		began := time.Now()
		op := sum("set", floats(1))
		op.Set = ids[0]
		if err := do(t, e, op); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("rank %d: the set's operation took %v", r, took)
		}
	})
	if err := finish(t, engines[2], last); err != nil {
		t.Error(err)
	}
	last.Release()
	waiting.Wait()
}
