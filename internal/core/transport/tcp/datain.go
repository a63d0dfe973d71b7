package tcp

import (
	"fmt"
	"sync/atomic"
)

// dataIn takes messages from one other member.
type dataIn struct {
	lane    *lane
	from    int
	streams []inStream
	listed  bool // in lane.receiving
}

func (i *dataIn) init(l *lane, from int) {
	i.lane, i.from, i.streams = l, from, make([]inStream, l.net.cfg.Streams)
	for k := range i.streams {
		s := &i.streams[k]
		s.lane, s.news = l, make(chan struct{}, 1)
	}
}

// done reports that no receive is outstanding.
func (i *dataIn) done() bool {
	for k := range i.streams {
		if i.streams[k].busy.Load() {
			return false
		}
	}
	return true
}

func (i *dataIn) post(p []byte) {
	if i.from == i.lane.me || !i.done() {
		panic(fmt.Sprintf("tcp: member %d posts a receive from member %d, which is itself or has one outstanding",
			i.lane.me, i.from))
	}
	k := parts(len(p), len(i.streams))
	for s := range k {
		i.streams[s].post(part(p, s, k))
	}
}

// inBulk reports that all streams with an outstanding part wait for much.
func (i *dataIn) inBulk() bool {
	for k := range i.streams {
		if s := &i.streams[k]; s.busy.Load() && !s.much {
			return false
		}
	}
	return true
}

func (i *dataIn) move() {
	for k := range i.streams {
		if s := &i.streams[k]; s.busy.Load() {
			s.move()
		}
	}
}

// inStream is one connection from another member. While it is lent, the driver reads messages straight into the posted
// buffers. While it is held, its goroutine, serve, reads, and completes a message that the driver has begun.
type inStream struct {
	lane      *lane
	connected bool        // guarded by Network.mu
	busy      atomic.Bool // from post until the part has been filled
	news      chan struct{}

	half     // news tells serve of parts posted while the connection is not lent
	sequence uint32
	header   [headerSize]byte
	part     []byte
	filled   int  // bytes of header and part
	much     bool // the driver's: it waits for much of the part, and the kernel wakes it when that has come
	scatter  scatter
}

func (s *inStream) post(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy.Store(true)
	s.part = p
	if s.lent() == nil {
		s.tell()
	}
}

func (s *inStream) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// complete notes that the part has been filled. s.mu is held.
func (s *inStream) complete() {
	s.part, s.filled = nil, 0
	s.busy.Store(false)
}
