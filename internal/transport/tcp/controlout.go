package tcp

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gorovod/gorovod/internal/transport/treeboard"
)

// lanePipe is a lane as its board sees it.
type lanePipe lane

var _ treeboard.Pipe = (*lanePipe)(nil)

func (p *lanePipe) Send(to int, frame []byte) { p.controlOut[to].send(frame) }

// controlOut carries this member's board frames to one other member. Who has a
// frame writes it at once where the socket has room; the rest, and all that comes
// before the connection is there, is queued for run.
type controlOut struct {
	lane *lane
	to   int
	news chan struct{} // capacity 1: queue is not empty

	mu       sync.Mutex
	started  bool
	direct   *writer          // nil unless run has connected, and waits for news
	queue    []byte           // messages for run to write
	begun    int              // bytes of queue that are the rest of a message written in part
	sequence uint32           // of the next message
	head     [headerSize]byte // of the message that is being sent

	writing []byte // run's; swapped with queue
}

func (o *controlOut) init(l *lane, to int) {
	o.lane, o.to, o.news = l, to, make(chan struct{}, 1)
}

// send writes or queues a frame. What is sent to a member that has left is dropped:
// its log is closed, or departed will find that it is not.
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
	head := o.head[:]
	header{messageBoard, o.sequence, uint64(len(frame))}.put(head)
	o.sequence++
	at := len(o.queue)
	if at == 0 && o.direct != nil {
		written := o.direct.write(head, frame)
		if written == headerSize+len(frame) {
			return
		}
		o.queue = append(append(o.queue, head[min(written, headerSize):]...), frame[max(0, written-headerSize):]...)
		if written > 0 {
			o.begun = len(o.queue)
		}
	} else {
		o.queue = append(append(o.queue, head...), frame...)
	}
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
	w := newWriter(c)
	for {
		o.open(w)
		select {
		case <-o.news:
			if _, err := c.Write(o.take()); err != nil {
				if n.failed(c, brokenError{error: err}); n.ending() {
					c.Close()
				}
				return
			}
		case <-o.lane.closed:
			rest, sequence := o.last()
			n.leave(c, rest, sequence)
			return
		case <-n.aborted:
			rest, sequence := o.last()
			c.Write(rest)
			n.farewell(c, sequence)
			return
		case <-n.leaving:
			c.Write(o.take()) // the log's last word may be among it
			_, sequence := o.last()
			n.farewell(c, sequence)
			c.Close()
			return
		}
	}
}

// open lets those who have frames write them, as long as nothing is queued.
func (o *controlOut) open(w *writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.direct = w
	}
}

// take is what run writes now. Nobody else does from here until open.
func (o *controlOut) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.direct, o.begun = nil, 0
	o.queue, o.writing = o.writing[:0], o.queue
	return o.writing
}

// last ends the writing of frames: it returns what is left of one that has been
// written in part, and the sequence number of the message after that. What is still
// queued will not be written.
func (o *controlOut) last() (rest []byte, sequence uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.direct = nil
	unwritten := uint32(0)
	for q := o.queue[o.begun:]; len(q) > 0; unwritten++ {
		h, err := parseHeader(q)
		if err != nil {
			panic(fmt.Sprintf("tcp: in this rank's own queue: %v", err))
		}
		q = q[headerSize+h.length:]
	}
	return slices.Clone(o.queue[:o.begun]), o.sequence - unwritten
}
