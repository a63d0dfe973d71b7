package auth

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Lobby holds the connections that have not proved themselves yet, and bounds their
// number: where it is full, one gives way to who comes. That is the oldest of the
// address with the most, so that a crowd from one address does not displace who comes
// from another; and as a proof takes milliseconds, the oldest is the least likely to
// come to one. A holder of the secret that it hits nevertheless tries again: the proof
// itself is refused to nobody.
type Lobby struct {
	limit int

	mu     sync.Mutex
	closed bool
	guests []guest // the oldest first
	from   map[netip.Addr]int
}

type guest struct {
	conn net.Conn
	addr netip.Addr
}

// NewLobby makes one for so many connections.
func NewLobby(limit int) *Lobby {
	return &Lobby{limit: limit, from: make(map[netip.Addr]int)}
}

// Enter takes a connection in, and closes the one that gives way, if one does.
func (l *Lobby) Enter(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return
	}
	if len(l.guests) >= l.limit {
		crowd := 0
		for i, g := range l.guests {
			if l.from[g.addr] > l.from[l.guests[crowd].addr] {
				crowd = i
			}
		}
		l.guests[crowd].conn.Close()
		l.remove(crowd)
	}
	a := addrOf(c)
	l.guests = append(l.guests, guest{c, a})
	l.from[a]++
}

// Leave takes a connection out, whatever has become of it. It is false if it has given
// way before.
func (l *Lobby) Leave(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.guests, func(g guest) bool { return g.conn == c })
	if i >= 0 {
		l.remove(i)
	}
	return i >= 0
}

// Close closes all that are there, and who enters later.
func (l *Lobby) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, g := range l.guests {
		g.conn.Close()
	}
	l.guests = nil
	clear(l.from)
}

// Len is how many there are.
func (l *Lobby) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.guests)
}

func (l *Lobby) remove(i int) {
	a := l.guests[i].addr
	if l.from[a]--; l.from[a] == 0 {
		delete(l.from, a)
	}
	l.guests = slices.Delete(l.guests, i, i+1)
}

// addrOf is the address at the other end; invalid if it has none.
func addrOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
