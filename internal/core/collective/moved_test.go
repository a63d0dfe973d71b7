package collective

import (
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// countingShared and countingComm count an operation's calls of the transport.
type countingShared struct {
	transport.Shared
	calls *int
}

func (c *countingShared) Advance(p transport.Phase, v uint64) {
	*c.calls++
	c.Shared.Advance(p, v)
}

func (c *countingShared) Lead(p transport.Phase, v uint64) {
	*c.calls++
	c.Shared.Lead(p, v)
}

type countingComm struct {
	transport.Comm
	calls int
}

func (c *countingComm) Send(to int, p []byte) {
	c.calls++
	c.Comm.Send(to, p)
}

func (c *countingComm) Recv(from int, p []byte) {
	c.calls++
	c.Comm.Recv(from, p)
}

// Moved shows an Advance that has done anything. It does not show an Advance that could do nothing because no other
// member has acted since the last one.
func TestMovedTellsWhetherAnythingHappened(t *testing.T) {
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		g := newGroup(t, size, o)
		calls := make([]*int, size)
		for r, l := range g.lanes {
			if o.Shared {
				calls[r] = new(int)
				l.shared = &countingShared{l.shared, calls[r]}
			} else {
				c := &countingComm{Comm: l.comm}
				calls[r] = &c.calls
				l.wrap(c)
				if h := l.hier; h != nil && h.local.shared != nil {
					h.local.shared = &countingShared{h.local.shared, &c.calls}
				}
			}
		}
		jobs := mixture(rng, o, size, 60)
		at, ops := make([]int, size), make([]Op, size)
		for left, idle := size*len(jobs), 0; left > 0; idle++ {
			if idle > 100_000 {
				t.Fatalf("deadlock: ranks are at jobs %v of %d", at, len(jobs))
			}
			r := rng.IntN(size)
			if at[r] == len(jobs) {
				continue
			}
			j, l := &jobs[at[r]], g.lanes[r]
			if ops[r] == nil {
				ops[r] = j.start(l)
			}
			moved, called := l.Moved(), *calls[r]
			done, err := ops[r].Advance()
			if err != nil {
				t.Fatalf("%s: rank %d: %v", j.name, r, err)
			}
			if *calls[r] != called && l.Moved() == moved {
				t.Fatalf("%s: rank %d acted, and Moved stays at %d", j.name, r, moved)
			}
			if l.Moved() != moved {
				idle = 0
			}
			if done {
				ops[r] = nil
				at[r]++
				left--
				continue
			}
			moved = l.Moved()
			if done, _ := ops[r].Advance(); done || l.Moved() != moved {
				t.Fatalf("%s: rank %d had not done all it could", j.name, r)
			}
		}
	})
}
