package p2p

import (
	"context"
	"fmt"
)

// RecvAny waits for the next message with this tag from any rank, and returns the sender, the length and the label.
// Messages of one sender come in order. RecvAny begins its search at another sender each time. Its errors are those of
// Recv. The death of one rank does not end it unless the world is aborted, because others may still send.
func (m *Endpoint) RecvAny(ctx context.Context, tag uint32, p []byte) (from, n int, label uint16, err error) {
	for err = m.enter(ctx, 0); err == nil; {
		arrived := m.arrivals()
		start := int(m.served.Add(1))
		for i := range m.boxes {
			b := &m.boxes[(start+i)%len(m.boxes)]
			b.mu.Lock()
			if !b.offers(tag) {
				b.mu.Unlock()
				continue
			}
			if n, label, err = b.receive(ctx, tag, p); err == nil {
				return b.from, n, label, nil
			}
			break
		}
		if err != nil {
			break
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			err = ctx.Err()
		case <-m.ended:
			err = m.err()
		}
	}
	if cause := m.err(); cause != nil {
		return 0, 0, 0, cause
	}
	return 0, 0, 0, fmt.Errorf("receive with tag %d from any rank: %w", tag, err)
}

// offers reports whether a receive with this tag would get a message at once. b.mu is held.
func (b *box) offers(tag uint32) bool {
	if len(b.waiting[tag]) > 0 {
		return false // a Recv waits for this sender's next message
	}
	return len(b.kept[tag]) > 0 || b.stuck[tag] > 0
}

// arrivals returns a channel that is closed when a box has a new message.
func (m *Endpoint) arrivals() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.arrived == nil {
		m.arrived = make(chan struct{})
	}
	return m.arrived
}

// announce wakes the RecvAny calls that wait.
func (m *Endpoint) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.arrived != nil {
		close(m.arrived)
		m.arrived = nil
	}
}
