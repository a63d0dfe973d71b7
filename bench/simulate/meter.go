package main

import (
	"sync"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// meter counts messages between hosts: frames of boards, and messages of collectives. It counts what these hand to the
// transport, so without headers of TCP. It is safe on any goroutine.
type meter struct {
	perHost int // ranks on a host

	mu       sync.Mutex
	on       bool
	messages int
	hosts    []passed
}

// passed is what has passed the link of one host.
type passed struct {
	out, in        int // bytes
	sent, received int // messages
}

func newMeter(hosts, perHost int) *meter {
	return &meter{perHost: perHost, hosts: make([]passed, hosts)}
}

// pass notes a message from a rank to another one. Those within a host do not count.
func (m *meter) pass(from, to, bytes int) {
	source, target := from/m.perHost, to/m.perHost
	if source == target {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.on {
		return
	}
	m.messages++
	m.hosts[source].sent++
	m.hosts[source].out += bytes
	m.hosts[target].received++
	m.hosts[target].in += bytes
}

// start forgets what has been counted, and counts from now on.
func (m *meter) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on, m.messages = true, 0
	clear(m.hosts)
}

// traffic is what an operation costs the network.
type traffic struct {
	messages int // between hosts, in all
	most     passed
}

// stop returns what has been counted. Each figure of most is that of the host where it is highest.
func (m *meter) stop() (t traffic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = false
	t.messages = m.messages
	for _, h := range m.hosts {
		t.most.out, t.most.in = max(t.most.out, h.out), max(t.most.in, h.in)
		t.most.sent, t.most.received = max(t.most.sent, h.sent), max(t.most.received, h.received)
	}
	return t
}

// meteredComm counts what a member sends.
type meteredComm struct {
	transport.Comm
	meter *meter
}

func (c *meteredComm) Send(to int, p []byte) {
	c.meter.pass(c.Rank(), to, len(p))
	c.Comm.Send(to, p)
}
