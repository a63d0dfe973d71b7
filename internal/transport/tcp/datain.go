package tcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
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

func (i *dataIn) move() {
	for k := range i.streams {
		if s := &i.streams[k]; s.busy.Load() {
			s.move()
		}
	}
}

// inStream is one connection from another member. Its goroutine, serve, lends it
// to the driver, who reads messages straight into the posted buffers; when something
// happens that is not plain receiving the goroutine takes it back with what has
// been read of an unfinished message, and reads itself from then on.
type inStream struct {
	lane      *lane
	connected bool        // guarded by Network.mu
	busy      atomic.Bool // from post until the part has been filled
	news      chan struct{}

	mu       sync.Mutex
	lent     *conn // nil: news tells serve of what is posted
	sequence uint32
	header   [headerSize]byte
	part     []byte
	filled   int // of header and part
	scatter  scatter

	left bool // serve's; the other end has left in good order
}

func (s *inStream) post(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy.Store(true)
	s.part = p
	if s.lent == nil {
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// move reads what has come, at most to the end of the part that is posted. What
// is no data message of the right length is left to serve.
func (s *inStream) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent == nil || !s.busy.Load() {
		return
	}
	for limit := s.filled + quantum; s.filled < limit; {
		var head []byte
		body := s.part
		if s.filled < headerSize {
			head = s.header[s.filled:]
		} else {
			body = s.part[s.filled-headerSize:]
		}
		n, err := s.lent.receive(&s.scatter, head, body)
		if n == 0 && err == nil {
			return
		}
		before := s.filled
		s.filled += n
		if err != nil || before < headerSize && s.filled >= headerSize && !s.expected() {
			s.lent.stir()
			s.lent = nil
			return
		}
		if s.filled == headerSize+len(s.part) {
			s.sequence++
			s.complete()
			return
		}
	}
	s.lane.net.goOn()
}

// expected reports that the header announces the part.
func (s *inStream) expected() bool {
	h, err := parseHeader(s.header[:])
	return err == nil && h == header{messageData, s.sequence, uint64(len(s.part))}
}

// complete notes that the part has been filled. s.mu is held.
func (s *inStream) complete() {
	s.part, s.filled = nil, 0
	s.busy.Store(false)
}

// serve lends the connection to the driver, and reads it when it has it back.
func (s *inStream) serve(c *conn) {
	n := s.lane.net
	var begun []byte
	if c.lend() {
		s.mu.Lock()
		s.lent = c
		s.mu.Unlock()
		n.bell.Ring()
		select {
		case <-c.stirred:
		case <-s.lane.closed:
		case <-n.aborted:
		case <-n.leaving:
		}
		s.mu.Lock()
		s.lent = nil
		inHeader := min(s.filled, headerSize)
		begun = slices.Concat(s.header[:inHeader], s.part[:s.filled-inHeader])
		s.mu.Unlock()
		if s.busy.Load() {
			select {
			case s.news <- struct{}{}:
			default:
			}
		}
		c.takeBack()
	}
	s.read(c, begun)
}

// readAhead is the size of a data connection's buffer in its second life.
const readAhead = 4 << 10

// read fills what is posted, until the connection or the lane ends. begun is
// what has been read already.
func (s *inStream) read(c *conn, begun []byte) {
	n := s.lane.net
	in := incoming{r: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(begun), c), readAhead), sequence: s.sequence}
	s.left = n.serve(c, &in, func(h header) error {
		if h.kind != messageData {
			return fmt.Errorf("message of kind %d on the data stream", h.kind)
		}
		p, err := s.await()
		if err != nil {
			return err
		}
		if uint64(len(p)) != h.length {
			return fmt.Errorf("lane %d: rank %d sent %d bytes where rank %d expects %d",
				s.lane.id, c.rank, h.length, n.cfg.Rank, len(p))
		}
		if err := readPayload(in.r, p); err != nil {
			return err
		}
		s.mu.Lock()
		s.complete()
		s.mu.Unlock()
		n.bell.Ring()
		return nil
	})
}

// finish is what comes after serve, when no posted buffer is touched any more.
func (s *inStream) finish(c *conn) {
	n := s.lane.net
	if c.abandoned() {
		n.drain(c)
		return
	}
	if !s.left {
		return
	}
	if _, err := s.await(); err == nil && n.forsaken(s.lane) {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d waits for data of it in lane %d", c.rank,
			n.cfg.Rank, s.lane.id))
	}
}

// await waits for a posted part.
func (s *inStream) await() ([]byte, error) {
	for {
		select {
		case <-s.news:
			s.mu.Lock()
			p, posted := s.part, s.busy.Load()
			s.mu.Unlock()
			if posted {
				return p, nil
			}
		case <-s.lane.closed:
			return nil, errEnding
		case <-s.lane.net.aborted:
			return nil, errEnding
		case <-s.lane.net.leaving:
			return nil, errEnding
		}
	}
}
