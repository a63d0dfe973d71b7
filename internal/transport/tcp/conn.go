package tcp

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// conn is a connection with the rank at its other end. It is used in one
// direction, from who dialled to who accepted; the other way only the last word
// travels.
type conn struct {
	*link.Conn
	rank    int  // at the other end
	inbound bool // this rank has accepted it
	stream  stream
	lane    *lane // that it serves; nil until that is open here
}

// String names the other end.
func (c *conn) String() string {
	return fmt.Sprintf("rank %d (%v)", c.rank, c.RemoteAddr())
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
