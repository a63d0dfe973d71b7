package tcp

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/pulse"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// conn is a connection with the rank at its other end. The package comment says who may use a connection when. Calls
// that may block (Read, Write and so on) wait until the connection is held.
type conn struct {
	rank    int  // at the other end
	inbound bool // this rank has accepted it
	stream  stream
	lane    *lane // the lane that it serves; nil until the lane is open here
	net     *Network
	remote  net.Addr
	local   net.Addr
	// frames takes the frames that come while nobody drives; nil for data. It is set before lend.
	frames *controlIn

	lostFirst bool // its goroutine's: it broke before its rank left in good order

	custody  custody
	recalled chan struct{} // closed when its goroutine is to take it back
	back     chan struct{} // closed when its goroutine has taken it back

	mu              sync.Mutex
	link            *link.Conn  // while it is held
	lost            error       // the error of link.Attach, if the connection could not be taken back
	fd              int         // while it is lent or returning, else -1
	watched         uint64      // the keeper's number for it
	least           int         // of fd, see await; the half's lock guards it
	pulse           pulse.Pulse // of fd
	readBy, writeBy time.Time   // deadlines
}

func (n *Network) newConn(raw *link.Conn, rank int, s stream, inbound bool) *conn {
	return &conn{
		rank: rank, inbound: inbound, stream: s, net: n, remote: raw.RemoteAddr(), local: raw.LocalAddr(),
		recalled: make(chan struct{}), back: make(chan struct{}), link: raw, fd: -1,
		pulse: pulse.Pulse{Idle: n.cfg.Idle},
	}
}

// String names the other end.
func (c *conn) String() string { return fmt.Sprintf("rank %d (%v)", c.rank, c.remote) }

// abandoned reports that this rank has closed the connection's lane, so that nobody needs the connection any more.
func (c *conn) abandoned() bool { return c.lane != nil && isClosed(c.lane.closed) }

// register adds a proved connection to those that Close and Abort end. If it returns false, it is too late, and the
// caller closes the connection.
func (n *Network) register(c *conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.registerLocked(c)
}

func (n *Network) registerLocked(c *conn) bool {
	if n.ended || n.ending() {
		return false
	}
	n.conns[c] = struct{}{}
	n.noteAddressLocked(c.local)
	return true
}

// drop closes a registered connection.
func (n *Network) drop(c *conn) {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
	c.Close()
}

func (n *Network) connsLocked(which func(*conn) bool) []*conn {
	var out []*conn
	for c := range n.conns {
		if which(c) {
			out = append(out, c)
		}
	}
	return out
}
