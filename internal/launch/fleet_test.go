package launch

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// A host may get its notice while it takes the job. It is no foreign program: it leaves.
func TestHostLeavesBeforeItIsReady(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		r := bufio.NewReader(there)
		if _, err := wire.ReadLine(r, wire.MaxGreeting); err != nil {
			t.Error(err)
		}
		if err := wire.Greet(there, wire.AgentGreeting, "gorovod"); err != nil {
			t.Error(err)
		}
		if f, err := (&wire.Receiver{R: r}).Next(); err != nil || f.Note == nil || f.Note.Job == nil {
			t.Errorf("the launcher gives no job: %+v, %v", f, err)
		}
		s := &wire.Sender{W: there}
		for _, n := range []wire.Note{{Type: wire.GoingNote, Text: "its launcher got SIGTERM"},
			{Type: wire.ReadyNote, Ready: &wire.Readiness{PID: 7}}} {
			if err := s.Send(n); err != nil {
				t.Error(err)
			}
		}
		bufio.NewReader(there).ReadString(0) // to the end
	}()
	said, died := make(chan struct{}), make(chan struct{})
	close(said)
	l := &line{name: "the connection", in: here, out: here, says: &tailOf{}, said: said, died: died, kill: func() {}}
	c, err := dial(t.Context(), l, wire.Assignment{Host: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer close(died)
	select {
	case why := <-c.leaves:
		if why != "its launcher got SIGTERM" || c.ready.PID != 7 {
			t.Errorf("it leaves since %q, and is ready as %+v", why, c.ready)
		}
	default:
		t.Error("it does not leave")
	}
}

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
