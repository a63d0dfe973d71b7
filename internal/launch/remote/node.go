package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/notice"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// ServeNode obeys node 0 until node 0 is gone, or this node has left. leaving makes this node leave, and ends decides
// how; with a nil leaving it never leaves.
func ServeNode(conn *auth.Sealed, leaving *notice.Departure, ends *ending.State, say func(text string)) (a *Agent,
	code int, err error) {
	defer conn.Close()
	head, _, err := net.SplitHostPort(conn.NetConn().RemoteAddr().String())
	if err != nil {
		return nil, 1, err
	}
	a = &Agent{lost: make(chan struct{}), running: map[int]*reporter{}, launcher: head, own: true, ends: ends, say: say}
	if leaving != nil {
		a.signals, a.notices = leaving.Signals, leaving.Notices
	}
	return a, a.run(conn, io.Writer(conn)), nil
}

// NodeLine makes a line from a node's connection.
func NodeLine(n nodes.Node, host string) *Line {
	died := make(chan struct{})
	end := sync.OnceFunc(func() { close(died) })
	return NewLine(fmt.Sprintf("the connection to node %d (%s)", n.Rank, host), sending{n.Conn},
		receiving{n.Conn, end}, died, func() {
			n.Conn.Close()
			end()
		})
}

// sending is the writing half of a connection.
type sending struct{ *auth.Sealed }

func (s sending) Close() error { return s.CloseWrite() }

// receiving is the reading half of a connection. It calls end when nothing more comes.
type receiving struct {
	*auth.Sealed
	end func()
}

func (r receiving) Read(p []byte) (int, error) {
	n, err := r.Sealed.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		r.end()
	}
	return n, err
}

// Farewell tells the agents of other nodes how the job ended.
func Farewell(crews map[string]spawn.Crew, code int, err error) {
	if err != nil && code == 0 {
		code = 1
	}
	for _, c := range crews {
		if far, ok := c.(*Crew); ok {
			far.tell(wire.Note{Type: wire.OutcomeNote, Code: code})
		}
	}
}

// TurnAway tells a node that waits for its job why it gets none, and closes the connection. It blocks until the node
// has read that, since to close earlier might destroy the text on its way.
func TurnAway(conn *auth.Sealed, why string) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(farewellTimeout))
	if wire.Greet(conn, wire.LauncherGreeting, "") != nil {
		return
	}
	if (&wire.Sender{W: conn}).Send(wire.Note{Type: wire.RefusedNote, Text: why}) == nil && conn.CloseWrite() == nil {
		io.Copy(io.Discard, conn)
	}
}

// farewellTimeout is how long a node that is turned away may take to read why.
const farewellTimeout = 5 * time.Second
