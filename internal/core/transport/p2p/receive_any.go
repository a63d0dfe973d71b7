package p2p

import (
	"context"
	"fmt"
)

// RecvAny waits for the next message with this tag from any of the ranks among (of all ranks, if that is nil), and
// returns the sender, the length and the label. Messages of one sender come in order. RecvAny begins its search at
// another sender each time. Its errors are those of Recv. The end of one rank does not end it, because others may still
// send. It fails once all of the others are known to have ended.
func (m *Endpoint) RecvAny(ctx context.Context, among []int, tag uint32, p []byte) (from, n int, label uint16,
	err error) {
	senders, err := m.senders(among)
	if err == nil {
		err = m.enter(ctx, 0)
	}
	for parting := m.parting; err == nil; {
		arrived := m.arrivals()
		var b *box
		if b, err = m.offering(senders, tag); err != nil {
			break
		}
		if b != nil {
			if n, label, err = b.receive(ctx, tag, p); err == nil {
				return b.from, n, label, nil
			}
			break
		}
		select {
		case <-arrived:
		case <-parting:
			for _, b := range senders {
				b.visit()
			}
			parting = nil
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

// senders returns the boxes of these ranks, of all ranks if among is nil.
func (m *Endpoint) senders(among []int) ([]*box, error) {
	var boxes []*box
	if among == nil {
		for r := range m.boxes {
			boxes = append(boxes, &m.boxes[r])
		}
	}
	for _, r := range among {
		if r < 0 || r >= m.cfg.Size {
			return nil, fmt.Errorf("rank %d of %d", r, m.cfg.Size)
		}
		boxes = append(boxes, &m.boxes[r])
	}
	return boxes, nil
}

// offering returns one of the boxes that has a message with this tag, with its mu held; nil if none has. It returns an
// error if none can have one any more: all other ranks have ended.
func (m *Endpoint) offering(senders []*box, tag uint32) (*box, error) {
	start, open := int(m.served.Add(1)), false
	var ended error
	for i := range senders {
		b := senders[(start+i)%len(senders)]
		b.mu.Lock()
		if b.offers(tag) {
			return b, nil
		}
		switch {
		case b.err != nil:
			ended = b.err
		case b.from != m.cfg.Rank:
			open = true
		}
		b.mu.Unlock()
	}
	if open || ended == nil { // without an end there is only this rank, which may send to itself
		return nil, nil
	}
	return nil, fmt.Errorf("no other rank is left to send it: %w", ended)
}

// offers reports whether a receive with this tag would get a message at once. b.mu is held.
func (b *box) offers(tag uint32) bool {
	if len(b.waiting[tag]) > 0 {
		return false // a Recv waits for this sender's next message
	}
	return len(b.kept[tag]) > 0 || b.stuck[tag] > 0
}

// arrivals returns a channel that is closed when a box has a new message, or gets none any more.
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
