package tcp

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// run connects, lends the connection to the driver, writes what has been posted before, and writes again after the
// connection has come back. after touches no posted buffer.
func (s *outStream) run() (after func()) {
	l, n, rank := s.lane, s.lane.net, s.lane.members[s.to]
	forsaken := n.forsaken
	if c := l.dial(l.ctx, s.to, data+stream(s.index)); c != nil {
		s.lendOut(c)
		if after, left := s.writeHeld(c); !left {
			return after
		}
		forsaken = func(*lane) bool { return n.forsakenBy(c) }
	}
	if n.peers[rank].left.Load() && forsaken(l) {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d had data for it in lane %d", rank,
			n.cfg.Rank, l.id))
	}
	return nil
}

// lendOut lends the connection to the driver, and returns when the connection has come back. From then on a watcher
// reads the silent direction.
func (s *outStream) lendOut(c *conn) {
	if s.lend(c) {
		s.writeFirst()
		s.awaitReturn(c)
	}
	if s.busy.Load() {
		s.tell()
	}
	n := s.lane.net
	n.start(&n.goroutines, func() { n.watchSilent(c) })
}

// writeHeld writes posted parts until the connection, the network or the lane ends. left is true if the other end has
// left in good order.
func (s *outStream) writeHeld(c *conn) (after func(), left bool) {
	l, n := s.lane, s.lane.net
	for {
		if !s.begun() {
			select {
			case <-s.news:
			case <-l.closed:
				return s.leave(c), false
			case <-n.aborted:
				n.farewell(c, s.sequence)
				return nil, false
			case <-n.leaving:
				n.farewell(c, s.sequence)
				c.Close()
				return nil, false
			}
		}
		// The deadline that CloseLane sets ends a write under way.
		if isClosed(l.closed) {
			return s.leave(c), false
		}
		switch err := s.writeRest(c); {
		case err == nil:
		case isClosed(l.closed) && errors.Is(err, os.ErrDeadlineExceeded):
			return s.leave(c), false
		default:
			return nil, n.failed(c, brokenError{error: err})
		}
	}
}

// begun reports that a message has been partly written.
func (s *outStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy.Load() && s.written > 0
}

// writeRest writes the rest of the posted part, if there is one.
func (s *outStream) writeRest(c *conn) error {
	if !s.busy.Load() {
		return nil
	}
	s.mu.Lock()
	s.parts[0], s.parts[1] = s.left()
	s.mu.Unlock()
	s.vector = s.parts[:]
	before := len(s.parts[0]) + len(s.parts[1])
	err := c.writeVector(&s.vector)
	after := 0
	for _, p := range s.vector {
		after += len(p)
	}
	s.parts, s.vector = [2][]byte{}, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written += before - after
	if err == nil {
		s.complete()
		s.lane.net.bell.Ring()
	}
	return err
}

// leave ends the connection of a lane that has been closed. after writes the rest of a message that was cut short, from
// a copy.
func (s *outStream) leave(c *conn) (after func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []byte
	if s.busy.Load() && s.written > 0 {
		head, body := s.left()
		rest = slices.Concat(head, body)
		s.sequence++
	}
	sequence := s.sequence
	return func() { s.lane.net.leave(c, rest, sequence) }
}
