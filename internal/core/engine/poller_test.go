package engine

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// turns is a network that counts its turns.
type turns struct {
	transport.Network
	polls atomic.Int64
}

func (n *turns) Poll() { n.polls.Add(1) }

// A rank that has nothing pending has no driver. A caller that finds its network aborted wakes one, so that the network
// gets a turn in which it passes the abort on.
func TestAnAbortFoundWithoutADriverGivesTheNetworkATurn(t *testing.T) {
	for name, find := range map[string]func(*Engine) *Error{
		"Failure": (*Engine).Failure,
		"Enqueue": func(e *Engine) *Error { _, err := e.Enqueue(sum("x", make([]byte, 4))); return err },
	} {
		n := &turns{Network: inproc.NewWorld(1, inproc.Options{Shared: true, Cards: 8})[0]}
		e, err := New(n, Options{Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		n.Abort(errors.New("out of paper"))
		before := n.polls.Load()
		if find(e) == nil {
			t.Fatalf("%s finds no abort", name)
		}
		for deadline := time.Now().Add(limit); n.polls.Load() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: no turn", name)
			}
		}
		e.Shutdown(limit)
	}
}
