package tcp

import (
	"fmt"
	"net"
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

// inBulk reports that all streams with an outstanding part wait for room in their sockets.
func (o *dataOut) inBulk() bool {
	for i := range o.streams {
		if s := &o.streams[i]; s.busy.Load() && s.lent() == nil {
			return false
		}
	}
	return true
}

func (o *dataOut) move() {
	for i := range o.streams {
		if s := &o.streams[i]; s.busy.Load() {
			s.move()
		}
	}
}

// outStream is one connection to another member. Its goroutine, run, makes the connection. While the connection is
// lent, the driver writes; but run begins a message that was posted before. While it is held, run writes, and completes
// a message that has been begun.
type outStream struct {
	lane  *lane
	to    int
	index int

	busy    atomic.Bool // from post until the part has been written
	started bool        // the driver's
	news    chan struct{}

	half     // news tells run of parts posted while the connection is not lent
	sequence uint32
	header   [headerSize]byte
	part     []byte
	written  int // bytes of header and part
	scatter  scatter

	// run's.
	parts  [2][]byte
	vector net.Buffers
}

func (s *outStream) post(p []byte) {
	s.mu.Lock()
	s.busy.Store(true)
	header{messageData, s.sequence, uint64(len(p))}.put(s.header[:])
	s.part, s.written = p, 0
	if c := s.lent(); c != nil {
		s.writeSome(c)
	} else {
		s.tell()
	}
	s.mu.Unlock()
	if !s.started {
		s.started = true
		n := s.lane.net
		n.mu.Lock()
		defer n.mu.Unlock()
		n.startUser(s.lane, &n.farewells, s.run)
	}
}

func (s *outStream) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// left returns the bytes that must still be written. s.mu is held.
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
