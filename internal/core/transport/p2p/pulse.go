package p2p

import (
	"maps"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// Beat implements transport.Pulsed.
func (m *Endpoint) Beat(every time.Duration) (silent []transport.Silence) {
	for c, rank := range m.connections() {
		if d := c.Beat(every); d > 0 {
			silent = append(silent, transport.Silence{Rank: rank, Addr: c.RemoteAddr().String(), For: d,
				Stuck: c.Stuck()})
		}
	}
	return silent
}

// Rest implements transport.Pulsed.
func (m *Endpoint) Rest() {
	for c := range m.connections() {
		c.Rest()
	}
}

// connections returns the open connections, with the ranks at their other ends.
func (m *Endpoint) connections() map[*link.Conn]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.conns)
}
