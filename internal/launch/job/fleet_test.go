package job

import (
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/nodes"
)

// Node 0 says at once that the nodes have too few slots: no other node need come, and the job would wait in silence.
func TestNodesWithTooFewSlots(t *testing.T) {
	node := func(name string, slots int) *visitor { return &visitor{Node: nodes.Node{Slots: slots}, name: name} }
	for _, c := range []struct {
		least, need int
		here        []*visitor
		says        string
	}{
		{least: 2, need: 4, here: []*visitor{node("b", 1)}, says: "2 nodes are here, with 3 slots (a 2, b 1), and " +
			"the job needs 4: a number of nodes stands for so many times node 0's slots."},
		{least: 2, need: 4, here: []*visitor{node("b", 2)}},
		{least: 2, need: 4},
		{least: 3, need: 6, here: []*visitor{node("b", 1)}},
		{least: 2, here: []*visitor{node("b", 1)}},
	} {
		f := &fleet{place: nodes.Place{Least: c.least}, self: nodes.Node{Host: "a", Slots: 2}, need: c.need,
			here: c.here}
		if got := f.short(); !strings.HasPrefix(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%d of %d nodes: %q, want %q", 1+len(c.here), c.least, got, c.says)
		}
	}
}
