package shm

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// A counter that changes under its owner makes the others wait, or read too early: the owner finds the former, the
// others find the latter.
func TestCountersThatNobodyHasWritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		to     uint64
		notice func(n *Network, s transport.Shared) error
		says   string
	}{
		{"behind", 2, func(n *Network, _ transport.Shared) error { return n.Verify() },
			"lane 0: the shared segment is corrupt: member 1 is said to have reached 2 in phase 0, and has reached 5"},
		{"far ahead", 1 << 60,
			func(n *Network, s transport.Shared) error { s.Counter(1, transport.In); return n.Err() },
			"the shared segment is corrupt: member 1 is said to have reached"},
	} {
		nets := openWorld(t, 2, nil)
		lanes := openLanes(t, nets, 0, []int{0, 1})
		lanes[1].Shared.Advance(transport.In, 5)
		for r, n := range nets {
			if err := n.Verify(); err != nil {
				t.Errorf("rank %d finds fault with a sound segment: %v", r, err)
			}
		}
		nets[0].lanes[0].part.data.counters[int(transport.NumPhases)+int(transport.In)].v.Store(c.to)
		if err := c.notice(nets[1], lanes[1].Shared); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
