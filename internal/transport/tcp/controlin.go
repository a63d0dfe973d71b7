package tcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/treeboard"
)

// controlIn takes the board frames of one other member. Its goroutine, serve,
// lends the connection to the driver, who takes the frames whenever it polls; while
// nobody drives, the keeper does. When something comes that is no frame, or the
// connection ends, the goroutine takes it back and reads itself from then on.
type controlIn struct {
	lane *lane
	from int
	open atomic.Bool // lent is not nil, most likely

	mu       sync.Mutex
	lent     *conn
	sequence uint32
	buffer   []byte // the first `filled` bytes have come and not been taken
	filled   int
	scatter  scatter

	polls uint32 // the keeper's: lane.polls when it looked last
}

// frameBuffer is how much of a control connection is read at once; it grows where a
// frame is longer.
const frameBuffer = 16 << 10

func (i *controlIn) init(l *lane, from int) { i.lane, i.from = l, from }

// limit is the longest frame.
func (i *controlIn) limit() uint64 { return uint64(treeboard.QueueLimit(i.lane.net.cfg.Cards)) }

// take takes the frames that have come, and reports whether there were any.
// Safe on any goroutine; it does not block.
func (i *controlIn) take() (took bool) {
	if !i.open.Load() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.lent != nil {
		n, err := i.lent.receive(&i.scatter, nil, i.buffer[i.filled:])
		if n == 0 && err == nil {
			return took
		}
		i.filled += n
		drained := i.filled < len(i.buffer)
		sequence := i.sequence
		if err != nil || !i.cut() {
			i.lent.stir()
			i.lent = nil
			i.open.Store(false)
		}
		took = took || i.sequence != sequence
		if drained {
			return took
		}
	}
	return took
}

// cut passes the whole frames in the buffer on to the board, and keeps the rest.
// False: what follows is not for it. i.mu is held.
func (i *controlIn) cut() bool {
	rest := i.buffer[:i.filled]
	good := true
	for len(rest) >= headerSize {
		h, err := parseHeader(rest)
		if good = err == nil && h.kind == messageBoard && h.sequence == i.sequence && h.length <= i.limit(); !good {
			break
		}
		whole := headerSize + int(h.length)
		if len(rest) < whole {
			if whole > len(i.buffer) {
				rest = append(make([]byte, 0, whole), rest...)
				i.buffer = rest[:whole]
			}
			break
		}
		i.sequence++
		i.receive(i.lent, rest[headerSize:whole])
		rest = rest[whole:]
	}
	i.filled = copy(i.buffer, rest)
	return good
}

// receive gives the board a frame that has come over c.
func (i *controlIn) receive(c *conn, frame []byte) {
	if err := i.lane.board.Receive(i.from, frame); err != nil {
		i.lane.net.failed(c, fmt.Errorf("lane %d: %w", i.lane.id, err))
	}
}

// serve lends the connection, and reads it when it has it back.
func (i *controlIn) serve(c *conn) {
	n := i.lane.net
	i.mu.Lock()
	i.buffer = make([]byte, frameBuffer)
	c.frames = i
	if c.lend() {
		i.lent = c
		i.open.Store(true)
		i.mu.Unlock()
		n.bell.Ring() // what has come already is no news to the kernel
		select {
		case <-c.stirred:
		case <-i.lane.closed:
		case <-n.aborted:
		case <-n.leaving:
		}
		i.mu.Lock()
		i.lent = nil
		i.open.Store(false)
		c.takeBack()
	}
	begun := slices.Clone(i.buffer[:i.filled])
	i.mu.Unlock()
	i.read(c, begun)
}

// read takes frames until the connection or the lane ends. begun is what has been
// read already.
func (i *controlIn) read(c *conn, begun []byte) {
	n := i.lane.net
	in := incoming{r: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(begun), c), frameBuffer), sequence: i.sequence}
	var frame []byte
	n.serve(c, &in, func(h header) error {
		if h.kind != messageBoard || h.length > i.limit() {
			return fmt.Errorf("message of kind %d and %d bytes on the control stream", h.kind, h.length)
		}
		if uint64(cap(frame)) < h.length {
			frame = make([]byte, h.length)
		}
		frame = frame[:h.length]
		if err := readPayload(in.r, frame); err != nil {
			return err
		}
		if err := i.lane.board.Receive(i.from, frame); err != nil {
			return fmt.Errorf("lane %d: %w", i.lane.id, err)
		}
		n.cfg.Wake()
		return nil
	})
	if c.abandoned() {
		n.drain(c)
	}
}

// polledBoard is a leader's board as its driver sees it: the driver takes the frames
// that have come when it polls.
//
// It does so in Stale, with which an engine begins a round, before it looks for
// Requests and batches: so what it takes it also deals with, though nothing may be
// pending after that. Who never calls Stale has the frames taken in Next.
type polledBoard struct {
	treeboard.Board
	lane   *lane
	rounds bool // Stale has been called
}

var _ transport.Board = (*polledBoard)(nil)

func (b *polledBoard) Stale(f func(card, gen uint32)) {
	b.rounds = true
	b.lane.takeFrames()
	b.Board.Stale(f)
}

func (b *polledBoard) Next() []transport.Record {
	if !b.rounds {
		b.lane.takeFrames()
	}
	return b.Board.Next()
}

// takeFrames takes what has come for the board. It belongs to the driver.
func (l *lane) takeFrames() {
	l.polls.Add(1)
	for _, m := range l.linked {
		l.controlIn[m].take()
	}
}
