package msgboard

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/board"
)

// coordinator is the board of member 0.
type coordinator struct {
	Config
	board *board.Board // marks, slots and the log

	unread []atomic.Int64 // by member: bytes of batches sent without credit

	mu     sync.Mutex
	mail   []byte // Requests that the driver has not seen: from, length, bytes
	posted []int  // by member: bytes of Requests without credit

	// The driver's.
	reading   []byte // what Requests calls f for; swapped with mail
	taken     []int  // by member: bytes of Requests that f has seen, to be credited
	frame     []byte // the frame that is being sent
	announced bool   // the closed frames have been sent
}

func newCoordinator(c Config) (*coordinator, error) {
	b, err := board.NewPrivate(shape(c.Size, c.Slots))
	if err != nil {
		return nil, fmt.Errorf("message board: %w", err)
	}
	return &coordinator{
		Config: c,
		board:  b,
		unread: make([]atomic.Int64, c.Size),
		posted: make([]int, c.Size),
		taken:  make([]int, c.Size),
	}, nil
}

func (c *coordinator) Mark(slot, gen uint32) bool {
	return c.marked(c.board.Mark(0, slot, gen))
}

func (c *coordinator) MarkGroup(marks []transport.Mark) bool {
	return c.marked(c.board.MarkGroup(0, marks))
}

func (c *coordinator) marked(r board.Result, err error) bool {
	if err != nil {
		c.Abort(err)
		return true
	}
	if r == board.Completed {
		c.Ring()
	}
	return r != board.Stale
}

// Stale has nothing to tell: the coordinator's own marks are judged at once.
func (c *coordinator) Stale(func(slot, gen uint32)) {}

func (c *coordinator) Post(request []byte) bool {
	if len(request) > transport.MaxRecord {
		panic(fmt.Sprintf("message board: a request of %d bytes; the limit is %d", len(request), transport.MaxRecord))
	}
	c.mu.Lock()
	kept := c.keep(0, request)
	c.mu.Unlock()
	if kept {
		c.Ring() // the driver may be asleep over something else
	}
	return kept
}

// keep puts a Request into the mail; false if member from has used its window
// up. c.mu is held.
func (c *coordinator) keep(from int, request []byte) bool {
	cost := 1 + len(request)
	if c.posted[from]+cost > requestWindow {
		return false
	}
	c.posted[from] += cost
	c.mail = binary.LittleEndian.AppendUint32(c.mail, uint32(from))
	c.mail = binary.LittleEndian.AppendUint32(c.mail, uint32(len(request)))
	c.mail = append(c.mail, request...)
	return true
}

func (c *coordinator) Requests(f func(from []int, p []byte)) {
	c.mu.Lock()
	c.mail, c.reading = c.reading[:0], c.mail
	c.mu.Unlock()
	if len(c.reading) == 0 {
		return
	}
	for rest := c.reading; len(rest) > 0; {
		from, n := number(rest), number(rest[4:])
		p := rest[8 : 8+n : 8+n]
		rest = rest[8+n:]
		c.taken[from] += 1 + len(p)
		f([]int{int(from)}, p)
	}
	c.giveCredit()
}

// giveCredit gives back what a member has used of its window, once that is a
// fair part of it.
func (c *coordinator) giveCredit() {
	for m, n := range c.taken {
		if m != 0 && n < requestWindow/4 || n == 0 {
			continue
		}
		c.taken[m] = 0
		c.mu.Lock()
		c.posted[m] -= n
		c.mu.Unlock()
		if m != 0 {
			c.frame = appendNumber(c.frame[:0], kindCredit, uint32(n))
			c.Pipe.Send(m, c.frame)
		}
	}
}

// Next cuts the next batch and sends it to all. While some member's window is
// used up there is none; the member's credit rings the bell.
func (c *coordinator) Next() []transport.Record {
	for m := range c.unread {
		if c.unread[m].Load() >= batchWindow {
			return nil
		}
	}
	records, err := c.board.Next(0)
	if err != nil {
		c.Abort(err)
		return nil
	}
	if len(records) > 0 && c.Size > 1 {
		c.frame = append(c.frame[:0], byte(kindBatch))
		for _, r := range records {
			c.frame = appendRecord(c.frame, r)
		}
		for m := 1; m < c.Size; m++ {
			c.unread[m].Add(int64(len(c.frame)))
			c.Pipe.Send(m, c.frame)
		}
	}
	c.sayClosed()
	return records
}

// sayClosed tells the others once that the log has come to its end.
func (c *coordinator) sayClosed() {
	if c.announced || !c.board.Drained(0) {
		return
	}
	c.announced = true
	c.frame = appendNumber(c.frame[:0], kindClosed, uint32(c.board.ClosedBy()))
	for m := 1; m < c.Size; m++ {
		c.Pipe.Send(m, c.frame)
	}
}

func (c *coordinator) Closed() bool {
	c.sayClosed()
	return c.announced
}

func (c *coordinator) Close() {
	if err := c.board.Close(0); err != nil {
		c.Abort(err)
	}
	c.Ring() // it is the driver who tells the others
}

func (c *coordinator) ClosedBy() int { return c.board.ClosedBy() }

func (c *coordinator) Publish(response []byte) bool {
	ok, err := c.board.Publish(response)
	if err != nil {
		c.Abort(err)
	}
	return ok
}

func (c *coordinator) Acquire() (slot, gen uint32, ok bool) {
	slot, gen, ok, err := c.board.Acquire()
	if err != nil {
		c.Abort(err)
	}
	return slot, gen, ok
}

func (c *coordinator) Retire(slot uint32) (marked []int, ok bool) {
	marked, ok, err := c.board.Retire(slot)
	if err != nil {
		c.Abort(err)
	}
	return marked, ok
}

func (c *coordinator) Marked(slot uint32) []int {
	marked, err := c.board.Marked(slot)
	if err != nil {
		c.Abort(err)
	}
	return marked
}

func (c *coordinator) Receive(from int, frame []byte) error {
	if from <= 0 || from >= c.Size {
		return fmt.Errorf("board frame from member %d of %d", from, c.Size)
	}
	k, body, err := split(frame, c.Slots)
	if err != nil {
		return err
	}
	switch k {
	case kindMark:
		return c.receiveMarks(from, body)
	case kindRequest:
		c.mu.Lock()
		kept := c.keep(from, body)
		c.mu.Unlock()
		if !kept {
			return fmt.Errorf("request frame beyond the window of %d bytes", requestWindow)
		}
	case kindClose:
		if err := c.board.Close(from); err != nil {
			return err
		}
	case kindCredit:
		n := int64(number(body))
		if left := c.unread[from].Add(-n); left < 0 {
			return fmt.Errorf("credit for %d bytes, of %d sent", n, left+n)
		}
	default:
		return fmt.Errorf("%v frame from member %d", k, from)
	}
	c.Ring()
	return nil
}

// receiveMarks marks for another member, and tells it if its marks came too late:
// of a group, by the first of them.
func (c *coordinator) receiveMarks(from int, body []byte) error {
	marks := make([]transport.Mark, 0, 1)
	for ; len(body) > 0; body = body[8:] {
		slot, gen := pair(body)
		if int64(slot) >= int64(c.Slots) {
			return fmt.Errorf("mark of slot %d of %d", slot, c.Slots)
		}
		marks = append(marks, transport.Mark{Slot: slot, Gen: gen})
	}
	r, err := c.board.MarkGroup(from, marks)
	if err != nil {
		return err
	}
	switch r {
	case board.Completed:
		c.Ring()
	case board.Stale:
		c.Pipe.Send(from, appendPair(make([]byte, 0, 9), kindStale, marks[0].Slot, marks[0].Gen))
	}
	return nil
}
