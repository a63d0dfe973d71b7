package remote

import (
	"bufio"
	"net"
	"testing"

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
	died := make(chan struct{})
	l := NewLine("the connection", here, here, died, func() {})
	c, err := dial(t.Context(), l, wire.Assignment{Host: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer close(died)
	select {
	case why := <-c.Leaves:
		if why != "its launcher got SIGTERM" || c.Ready.PID != 7 {
			t.Errorf("it leaves since %q, and is ready as %+v", why, c.Ready)
		}
	default:
		t.Error("it does not leave")
	}
}
