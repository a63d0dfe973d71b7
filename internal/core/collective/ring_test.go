package collective

import (
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// questionCounter counts the calls of Sent and Received of an operation.
type questionCounter struct {
	transport.Comm
	sent, received int
}

func (a *questionCounter) Sent(to int) bool       { a.sent++; return a.Comm.Sent(to) }
func (a *questionCounter) Received(from int) bool { a.received++; return a.Comm.Received(from) }

// A member that has nothing to pass on asks only for what is to come. Each question makes system calls for all that is
// under way.
func TestRingThatWaitsAsksOnce(t *testing.T) {
	g := newGroup(t, 3, inproc.Options{Hosts: [][]int{{0}, {1}, {2}}})
	data := make([]byte, 3*testPiece)
	ops := make([]Op, 3)
	for r, l := range g.lanes {
		in := data
		if r > 0 {
			in = make([]byte, len(data))
		}
		ops[r] = l.ring.startAllreduce(l, reduction{dt: tensor.Uint8, op: tensor.Sum, in: in, out: in, scale: 1,
			wire: tensor.WireAsIs})
		l.begin()
	}
	asked := &questionCounter{Comm: g.lanes[0].comm}
	g.lanes[0].wrap(asked)
	ops[0].Advance() // it sends its own share
	asked.sent, asked.received = 0, 0
	for range 10 {
		if done, err := ops[0].Advance(); done || err != nil {
			t.Fatal(done, err)
		}
	}
	if asked.sent != 0 || asked.received != 10 {
		t.Errorf("in 10 turns it asks %d times for what it has sent, and %d times for what is to come", asked.sent,
			asked.received)
	}
	for over := 0; over < 3; {
		for r := range ops {
			if ops[r] == nil {
				continue
			}
			if done, err := ops[r].Advance(); err != nil {
				t.Fatal(err)
			} else if done {
				ops[r] = nil
				over++
			}
		}
	}
}
