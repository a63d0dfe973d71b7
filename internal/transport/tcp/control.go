package tcp

import (
	"bufio"
	"fmt"
	"sync"

	"github.com/gorovod/gorovod/internal/transport/treeboard"
)

// lanePipe is a lane as its board sees it.
type lanePipe lane

var _ treeboard.Pipe = (*lanePipe)(nil)

func (p *lanePipe) Send(to int, frame []byte) { p.controlOut[to].send(frame) }

// controlOut carries this member's board frames to one other member.
type controlOut struct {
	lane *lane
	to   int
	news chan struct{} // capacity 1: queue is not empty

	mu       sync.Mutex
	started  bool
	queue    []byte // messages for run to write
	sequence uint32 // of the next message

	writing []byte // run's; swapped with queue
}

func (o *controlOut) init(l *lane, to int) {
	o.lane, o.to, o.news = l, to, make(chan struct{}, 1)
}

// send queues a frame. What is sent to a member that has left is dropped: its
// log is closed, or departed will find that it is not.
func (o *controlOut) send(frame []byte) {
	n, rank := o.lane.net, o.lane.members[o.to]
	if n.peers[rank].left.Load() || n.ending() || isClosed(o.lane.closed) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if limit := treeboard.QueueLimit(n.cfg.Slots); len(o.queue)+headerSize+len(frame) > limit {
		n.Abort(fmt.Errorf("more than %d bytes of board frames wait for rank %d", limit, rank))
		return
	}
	at := len(o.queue)
	var h [headerSize]byte
	header{messageBoard, o.sequence, uint64(len(frame))}.put(h[:])
	o.sequence++
	o.queue = append(append(o.queue, h[:]...), frame...)
	if at > 0 {
		return // run has been told already
	}
	select {
	case o.news <- struct{}{}:
	default:
	}
	if !o.started {
		o.started = true
		n.start(&n.farewells, o.run)
	}
}

// claim makes the caller the only one who connects; false if run does, or did.
func (o *controlOut) claim() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started {
		return false
	}
	o.started = true
	return true
}

// run connects and writes what is queued, until the network or the lane ends.
func (o *controlOut) run() {
	n := o.lane.net
	c := o.lane.dial(o.lane.lastCtx, o.to, control) // the last that a member hears may be that the log is closed
	if c == nil {
		if n.isAborted() {
			o.lane.tell(o.to)
		}
		return
	}
	for {
		select {
		case <-o.news:
			if _, err := c.Write(o.take()); err != nil {
				if n.failed(c, brokenError{error: err}); n.ending() {
					c.Close()
				}
				return
			}
		case <-o.lane.closed:
			n.leave(c, nil, o.nextSequence())
			return
		case <-n.aborted:
			n.farewell(c, o.nextSequence())
			return
		case <-n.leaving:
			c.Write(o.take()) // the log's last word may be among it
			n.farewell(c, o.nextSequence())
			c.Close()
			return
		}
	}
}

func (o *controlOut) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue, o.writing = o.writing[:0], o.queue
	return o.writing
}

// nextSequence is the sequence number after what has been written; what is
// still queued will not be.
func (o *controlOut) nextSequence() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	unwritten := uint32(0)
	for q := o.queue; len(q) > 0; unwritten++ {
		h, err := parseHeader(q)
		if err != nil {
			panic(fmt.Sprintf("tcp: in this rank's own queue: %v", err))
		}
		q = q[headerSize+h.length:]
	}
	return o.sequence - unwritten
}

// readControl reads a member's board frames.
func (l *lane) readControl(c *conn, from int) {
	limit := uint64(treeboard.QueueLimit(l.net.cfg.Slots))
	in := incoming{r: bufio.NewReaderSize(c, 16<<10)}
	var frame []byte
	l.net.serve(c, &in, func(h header) error {
		if h.kind != messageBoard || h.length > limit {
			return fmt.Errorf("message of kind %d and %d bytes on the control stream", h.kind, h.length)
		}
		if uint64(cap(frame)) < h.length {
			frame = make([]byte, h.length)
		}
		frame = frame[:h.length]
		if err := readPayload(in.r, frame); err != nil {
			return err
		}
		if err := l.board.Receive(from, frame); err != nil {
			return fmt.Errorf("lane %d: %w", l.id, err)
		}
		l.net.cfg.Wake()
		return nil
	})
	if c.abandoned() {
		l.net.drain(c)
	}
}
