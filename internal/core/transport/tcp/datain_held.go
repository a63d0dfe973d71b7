package tcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
)

// serve lends the connection to the driver, and reads it after the connection has come back. after touches no posted
// buffer.
func (s *inStream) serve(c *conn) (after func()) {
	var begun []byte
	if s.lend(c) {
		s.awaitReturn(c)
		s.mu.Lock()
		inHeader := min(s.filled, headerSize)
		begun = slices.Concat(s.header[:inHeader], s.part[:s.filled-inHeader])
		s.mu.Unlock()
		if s.busy.Load() {
			s.tell()
		}
	}
	left := s.read(c, begun)
	return func() { s.finish(c, left) }
}

// readAhead is the size of the buffer of a data connection that is held.
const readAhead = 4 << 10

// read fills posted parts until the connection or the lane ends. begun is the data that has been read already. left is
// true if the other end has left in good order.
func (s *inStream) read(c *conn, begun []byte) (left bool) {
	n := s.lane.net
	in := incoming{r: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(begun), c), readAhead), sequence: s.sequence}
	return n.serve(c, &in, func(h header) error {
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

// finish ends the work after read: it drains the connection of a lane that has been closed, or finds out whether a
// receive waits for a rank that has left.
func (s *inStream) finish(c *conn, left bool) {
	n := s.lane.net
	if c.abandoned() {
		n.drain(c)
		return
	}
	if !left {
		return
	}
	if _, err := s.await(); err == nil && n.forsakenBy(c) {
		n.Abort(fmt.Errorf("rank %d has closed its network; rank %d waits for data of it in lane %d", c.rank,
			n.cfg.Rank, s.lane.id))
	}
}
