package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// slowness is how long each operation of a slow carrier takes at least.
const slowness = 100 * time.Millisecond

// slow leaves operations to shared memory, and counts them. It keeps each one back for slowness. Then it rings, since
// nobody polls it.
type slow struct {
	under *collective.Lane
	bell  transport.Bell
	can   collective.Abilities
	begun [collective.Barrier + 1]int // by kind
	op    collective.Op
	due   atomic.Bool
}

func (s *slow) Start(a *collective.Arguments) collective.Op {
	s.begun[a.Kind]++
	s.op = s.under.Start(a)
	s.due.Store(false)
	time.AfterFunc(slowness, func() {
		s.due.Store(true)
		s.bell.Ring()
	})
	return s
}

func (s *slow) Advance() (bool, error) {
	if !s.due.Load() {
		return false, nil
	}
	return s.op.Advance()
}

func (s *slow) Can() collective.Abilities { return s.can }
func (s *slow) Moved() uint64             { return s.under.Moved() }
func (s *slow) Sent() collective.Sent     { return s.under.Sent() }
func (s *slow) Tune(t collective.Tuning)  { s.under.Tune(t) }
func (s *slow) Close(cause error) bool    { return s.under.Close(cause) }
func (s *slow) Free()                     { s.under.Free() }

// A carrier of a program's own needs only what an Opening has: it can use the network's data path, end a sleep of the
// driver by the bell, and say in which way it sends.
func TestACarrierThatRings(t *testing.T) {
	const size, bytes = 2, 4096
	for name, c := range map[string]struct {
		change func(can *collective.Abilities)
		way    feed.Way
		sent   uint64 // by each of two members, for each sum
	}{
		"as it counts": {func(*collective.Abilities) {}, feed.ByMemory, bytes},
		"as it takes at least": {func(can *collective.Abilities) {
			can.Counts, can.Way = false, feed.ByNCCL
		}, feed.ByNCCL, bytes},
	} {
		t.Run(name, func(t *testing.T) {
			opened := make(chan *slow, size)
			engines := newWorld(t, size, true, func(o *Options) {
				o.Carrier = func(l Opening) (collective.Carrier, error) {
					if l.ID != 0 || l.Incarnation != 0 || len(l.Members) != size {
						t.Errorf("opening of %+v", l)
					}
					s := &slow{under: collective.NewLane(l.Lane, collective.Options{}), bell: l.Bell}
					s.can = s.under.Can()
					c.change(&s.can)
					opened <- s
					return s, nil
				}
			})
			const sums = 3
			var fastest [size]time.Duration
			each(engines, func(r int, e *Engine) {
				fastest[r] = limit
				for range sums {
					began := time.Now()
					data := make([]byte, bytes)
					copy(data, floats(float32(r+1)))
					if err := do(t, e, sum("x", data)); err != nil || float(data, 0) != 3 {
						t.Errorf("rank %d: %v, sum %v", r, err, float(data, 0))
					}
					fastest[r] = min(fastest[r], time.Since(began))
				}
				barrier := &Op{Type: operation.Barrier, DType: tensor.Uint8, Name: "b", Prescale: 1, Postscale: 1}
				if err := do(t, e, barrier); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			})
			for r, e := range engines {
				// The driver's longest sleep is half a second.
				if d := fastest[r]; d < slowness || d > 3*slowness {
					t.Errorf("rank %d: no operation of %v has taken less than %v", r, slowness, d)
				}
				f := e.Figures()
				if len(f.Traffic) != 1 || f.Traffic[0].Way != c.way || f.Traffic[0].Bytes != sums*c.sent {
					t.Errorf("rank %d: %+v, not %d bytes by %v", r, f.Traffic, sums*c.sent, c.way)
				}
			}
			for range size {
				s := <-opened
				if s.begun[collective.Allreduce] != sums || s.begun[collective.Barrier] != 1 {
					t.Errorf("operations by kind: %v", s.begun)
				}
			}
		})
	}
}
