package auth

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Lobby holds the connections that have not proved themselves yet, up to a limit. When it is full, it closes one
// connection for each newcomer: the oldest one of the address that has the most. So a crowd from one address does not
// displace other addresses. A proof takes milliseconds, so the oldest connection is the least likely to prove itself. A
// peer that knows the secret tries again if the Lobby has closed its connection.
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

// NewLobby returns a Lobby for limit connections.
func NewLobby(limit int) *Lobby {
	return &Lobby{limit: limit, from: make(map[netip.Addr]int)}
}

// Enter adds a connection. In a full Lobby it closes another one.
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

// Leave removes a connection, whether it has proved itself or not. It returns false if the Lobby has already closed the
// connection.
func (l *Lobby) Leave(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.guests, func(g guest) bool { return g.conn == c })
	if i >= 0 {
		l.remove(i)
	}
	return i >= 0
}

// Close closes all connections, also connections that enter later.
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

// Len returns the number of connections.
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

// addrOf returns the address of the other end; invalid if it has none.
func addrOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
