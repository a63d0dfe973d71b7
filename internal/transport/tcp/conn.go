package tcp

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/pulse"
	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// conn is a connection with the rank at its other end. It is used in one
// direction, from who dialled to who accepted; the other way only the last word
// travels.
//
// It has two lives. While it is lent, the driver alone reads and writes it, by
// system calls that do not block (transmit and receive), and the runtime knows
// nothing of the descriptor: what comes wakes nobody but a driver that sleeps on
// the bell. The other methods, which may block, take it back first. Nothing
// lends it again.
type conn struct {
	rank    int  // at the other end
	inbound bool // this rank has accepted it
	stream  stream
	lane    *lane // that it serves; nil until that is open here
	net     *Network
	remote  net.Addr
	// stirred has a token when a lent connection is to be taken back: a word has
	// come, the other end has closed it, or the driver has met what it does
	// not deal with. Capacity 1.
	stirred chan struct{}
	// frames takes what comes while nobody drives; nil for data. Set before lend.
	frames *controlIn

	mu              sync.Mutex
	link            *link.Conn  // nil while it is lent, or lost on the way back
	lost            error       // why the way back was barred
	fd              int         // while it is lent; else -1
	watched         uint64      // by the keeper, under this number
	pulse           pulse.Pulse // while it is lent
	closed          bool
	readBy, writeBy time.Time // deadlines
}

func (n *Network) newConn(raw *link.Conn, rank int, s stream, inbound bool) *conn {
	return &conn{
		rank: rank, inbound: inbound, stream: s, net: n, remote: raw.RemoteAddr(),
		stirred: make(chan struct{}, 1), link: raw, fd: -1,
	}
}

// String names the other end.
func (c *conn) String() string { return fmt.Sprintf("rank %d (%v)", c.rank, c.remote) }

// lend begins the first life; false if there is none here.
func (c *conn) lend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.link == nil || c.link.IsSealed() || c.net.edges == nil {
		return false
	}
	fd, err := c.link.Detach()
	if err != nil {
		return false
	}
	c.link, c.fd = nil, fd
	if c.watched, err = c.net.keeper.add(c, fd); err == nil {
		if err = c.net.edges.watch(fd, c.inbound); err == nil {
			return true
		}
	}
	c.reclaim()
	return false
}

// stir has the connection taken back.
func (c *conn) stir() {
	select {
	case c.stirred <- struct{}{}:
	default:
	}
}

// reclaim begins the second life. c.mu is held.
func (c *conn) reclaim() {
	if c.fd < 0 {
		return
	}
	c.net.keeper.remove(c.watched, c.fd)
	c.net.edges.unwatch(c.fd)
	c.pulse.Rest(c.fd)
	c.link, c.lost = link.Attach(c.fd, c.net.cfg.TrackFD)
	c.fd = -1
	if c.link != nil {
		c.link.SetReadDeadline(c.readBy)
		c.link.SetWriteDeadline(c.writeBy)
	}
}

// takeBack returns the connection in its second life.
func (c *conn) takeBack() (*link.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	c.reclaim()
	return c.link, c.lost
}

func (c *conn) Read(p []byte) (int, error) {
	l, err := c.takeBack()
	if err != nil {
		return 0, err
	}
	return l.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	l, err := c.takeBack()
	if err != nil {
		return 0, err
	}
	return l.Write(p)
}

// writeVector is net.Buffers.WriteTo with writev.
func (c *conn) writeVector(v *net.Buffers) error {
	l, err := c.takeBack()
	if err == nil {
		_, err = v.WriteTo(l.Stream) // the socket itself: it knows writev
	}
	return err
}

func (c *conn) CloseWrite() error {
	l, err := c.takeBack()
	if err != nil {
		return err
	}
	return l.CloseWrite()
}

func (c *conn) SetDeadline(t time.Time) {
	c.SetReadDeadline(t)
	c.SetWriteDeadline(t)
}

// SetReadDeadline holds for the second life.
func (c *conn) SetReadDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	if c.link != nil {
		c.link.SetReadDeadline(t)
	}
}

// SetWriteDeadline holds for the second life.
func (c *conn) SetWriteDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	if c.link != nil {
		c.link.SetWriteDeadline(t)
	}
}

// Close may be called by anyone, any number of times.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.reclaim()
	c.closed = true
	if c.link != nil {
		c.link.Close()
	}
	c.stir()
	return nil
}

// register adds a proved connection to those that Close and Abort attend to.
// False: too late, the caller closes it.
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
	return true
}

// drop closes a registered connection.
func (n *Network) drop(c *conn) {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
	c.Close()
}
