package tcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// dataOut carries messages to one other member.
type dataOut struct {
	lane    *lane
	to      int
	streams []outStream
	listed  bool // in lane.sending
}

func (o *dataOut) init(l *lane, to int) {
	o.lane, o.to, o.streams = l, to, make([]outStream, l.net.cfg.Streams)
	for i := range o.streams {
		s := &o.streams[i]
		s.lane, s.to, s.index, s.news = l, to, i, make(chan struct{}, 1)
	}
}

// done reports that no message is outstanding.
func (o *dataOut) done() bool {
	for i := range o.streams {
		if o.streams[i].busy.Load() {
			return false
		}
	}
	return true
}

func (o *dataOut) post(p []byte) {
	if o.to == o.lane.me || !o.done() {
		panic(fmt.Sprintf("tcp: member %d posts a send to member %d, which is itself or has one outstanding",
			o.lane.me, o.to))
	}
	k := parts(len(p), len(o.streams))
	for i := range k {
		o.streams[i].post(part(p, i, k))
	}
}

func (o *dataOut) move() {
	for i := range o.streams {
		if s := &o.streams[i]; s.busy.Load() {
			s.move()
		}
	}
}

// outStream is one connection to another member. Its goroutine, run, makes it
// and lends it to the driver, who writes; when something happens that is not plain
// sending the goroutine takes it back, and writes itself from then on.
type outStream struct {
	lane  *lane
	to    int
	index int

	busy    atomic.Bool // from post until the part has been written
	started bool        // the driver's
	news    chan struct{}

	mu       sync.Mutex
	lent     *conn // nil: news tells run of what is posted
	sequence uint32
	header   [headerSize]byte
	part     []byte
	written  int // of header and part
	scatter  scatter

	// run's.
	parts  [2][]byte
	vector net.Buffers
	// What run leaves to finish when the lane is closed.
	conn *conn
	rest []byte // of the message that was cut short; a copy
}

func (s *outStream) post(p []byte) {
	s.mu.Lock()
	s.busy.Store(true)
	header{messageData, s.sequence, uint64(len(p))}.put(s.header[:])
	s.part, s.written = p, 0
	if s.lent != nil {
		s.writeSome()
	} else {
		s.tell()
	}
	s.mu.Unlock()
	if !s.started {
		s.started = true
		n := s.lane.net
		n.mu.Lock()
		defer n.mu.Unlock()
		n.startUser(s.lane, &n.farewells, s.run, s.finish)
	}
}

func (s *outStream) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// move goes on with the driver's part.
func (s *outStream) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent != nil && s.busy.Load() {
		s.writeSome()
	}
}

// writeSome is the driver's write. s.mu is held, and the connection is lent.
func (s *outStream) writeSome() {
	if s.write() {
		s.lane.net.goOn()
	}
}

// write writes what can be written now, and reports whether there may be more of
// that. s.mu is held, and the connection is lent.
func (s *outStream) write() (more bool) {
	for limit := s.written + quantum; s.written < limit; {
		head, body := s.left()
		n, err := s.lent.transmit(&s.scatter, head, body)
		if err != nil {
			s.lent.stir() // run meets the same error
			s.lent = nil
			return false
		}
		if n == 0 {
			return false
		}
		if s.written += n; s.written == headerSize+len(s.part) {
			s.complete()
			return false
		}
	}
	return true
}

// left is what is still to be written. s.mu is held.
func (s *outStream) left() (head, body []byte) {
	if s.written < headerSize {
		return s.header[s.written:], s.part
	}
	return nil, s.part[s.written-headerSize:]
}

// complete notes that the part has been written. s.mu is held.
func (s *outStream) complete() {
	s.sequence++
	s.part = nil
	s.busy.Store(false)
}

// run connects and serves until the network or the lane ends.
func (s *outStream) run() {
	l, n, rank := s.lane, s.lane.net, s.lane.members[s.to]
	c := l.dial(l.ctx, s.to, data+stream(s.index))
	if c != nil {
		s.lend(c)
	}
	for c != nil {
		if !s.begun() {
			select {
			case <-s.news:
			case <-l.closed:
				s.leave(c)
				return
			case <-n.aborted:
				n.farewell(c, s.sequence)
				return
			case <-n.leaving:
				n.farewell(c, s.sequence)
				c.Close()
				return
			}
		}
		// The deadline that CloseLane sets ends a write that it finds under way.
		if isClosed(l.closed) {
			s.leave(c)
			return
		}
		if err := s.writeRest(c); err != nil {
			if isClosed(l.closed) && errors.Is(err, os.ErrDeadlineExceeded) {
				s.leave(c)
				return
			}
			if n.failed(c, brokenError{error: err}) {
				break
			}
			return
		}
	}
	if n.peers[rank].left.Load() && n.forsaken(l) {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d had data for it in lane %d", rank,
			n.cfg.Rank, l.id))
	}
}

// lend gives the connection to the driver, and returns when it has it back.
// From then on a watcher reads the silent direction.
func (s *outStream) lend(c *conn) {
	n := s.lane.net
	if c.lend() {
		s.mu.Lock()
		s.lent = c
		if s.busy.Load() {
			s.write()
		}
		s.mu.Unlock()
		n.bell.Ring() // the driver goes on
		select {
		case <-c.stirred:
		case <-s.lane.closed:
		case <-n.aborted:
		case <-n.leaving:
		}
		s.mu.Lock()
		s.lent = nil
		s.mu.Unlock()
		c.takeBack()
	}
	if s.busy.Load() {
		s.tell()
	}
	n.start(&n.goroutines, func() { n.watch(c) })
}

// begun reports that a message has been written in part.
func (s *outStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy.Load() && s.written > 0
}

// writeRest writes what is left of the part that is posted, if there is one.
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

// leave prepares what finish does, so that the posted buffer is not needed any more.
func (s *outStream) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	if s.busy.Load() && s.written > 0 {
		head, body := s.left()
		s.rest = slices.Concat(head, body)
		s.sequence++
	}
}

// finish ends the connection of a lane that has been closed.
func (s *outStream) finish() {
	if s.conn != nil {
		s.lane.net.leave(s.conn, s.rest, s.sequence)
	}
}
