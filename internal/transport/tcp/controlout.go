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
func (p *lanePipe) Flush()                    { p.unflushed.flush() }

// unflushed lists those who have frames that nobody has begun to write.
type unflushed struct {
	mu   sync.Mutex
	outs []*controlOut
}

func (u *unflushed) add(o *controlOut) {
	u.mu.Lock()
	u.outs = append(u.outs, o)
	u.mu.Unlock()
}

func (u *unflushed) flush() {
	for {
		u.mu.Lock()
		last := len(u.outs) - 1
		if last < 0 {
			u.mu.Unlock()
			return
		}
		o := u.outs[last]
		u.outs = u.outs[:last]
		u.mu.Unlock()
		o.flush()
	}
}

// controlOut carries this member's board frames to one other member. All frames are
// queued. Who flushes writes them at once where the socket has room, one at a time and with no lock
// held; the rest, and all that comes before the connection is there, is run's. The queue's order
// is that of the frames, and only the one who has taken its head writes: so they stay in order.
type controlOut struct {
	lane *lane
	to   int
	news chan struct{} // capacity 1: queue is not empty

	mu       sync.Mutex
	started  bool
	direct   *writer          // nil unless run has connected, and waits for news
	listed   bool             // in unflushed
	flushing bool             // a flush has taken the head of the queue, and writes it
	flushed  sync.Cond        // on mu: flushing has ended
	spare    []byte           // what the flush before has written; swapped with queue
	queue    []byte           // messages for run to write
	begun    int              // bytes of queue that are the rest of a message written in part
	sequence uint32           // of the next message
	head     [headerSize]byte // of the message that is being sent

	writing []byte // run's; swapped with queue
}

func (o *controlOut) init(l *lane, to int) {
	o.lane, o.to, o.news = l, to, make(chan struct{}, 1)
	o.flushed.L = &o.mu
}

// send queues a frame. What is sent to a member that has left is dropped:
// its log is closed, or departed will find that it is not.
func (o *controlOut) send(frame []byte) {
	n, rank := o.lane.net, o.lane.members[o.to]
	if n.peers[rank].left.Load() || n.ending() || isClosed(o.lane.closed) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if limit := treeboard.QueueLimit(n.cfg.Cards); len(o.queue)+headerSize+len(frame) > limit {
		n.Abort(fmt.Errorf("more than %d bytes of board frames wait for rank %d", limit, rank))
		return
	}
	head := o.head[:]
	header{messageBoard, o.sequence, uint64(len(frame))}.put(head)
	o.sequence++
	o.queue = append(append(o.queue, head...), frame...)
	switch {
	case o.direct == nil:
		o.tell()
	case !o.listed:
		o.listed = true
		o.lane.unflushed.add(o)
	}
}

// tell leaves the queue to run. mu is held.
func (o *controlOut) tell() {
	select {
	case o.news <- struct{}{}:
	default: // it has been told already
	}
	if !o.started {
		o.started = true
		o.lane.net.start(&o.lane.net.farewells, o.run)
	}
}

// flush writes what is queued, unless another flush does so, or run.
func (o *controlOut) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listed = false
	for o.direct != nil && !o.flushing && len(o.queue) > 0 {
		w, p := o.direct, o.queue
		o.queue, o.flushing = o.spare[:0], true
		o.mu.Unlock()
		written := w.write(p, nil)
		o.mu.Lock()
		o.flushing = false
		o.flushed.Broadcast()
		if o.spare = p; written < len(p) {
			o.keep(p, written)
		}
	}
}

// keep leaves to run what a flush could not write of p, and what has come since. mu is held.
func (o *controlOut) keep(p []byte, written int) {
	at := 0
	for at < written {
		at += headerSize + length(p[at:])
	}
	o.begun = at - written
	o.queue = slices.Insert(o.queue, 0, p[written:]...)
	o.direct = nil
	o.tell()
}

// length is that of the first message's payload in this rank's own queue.
func length(q []byte) int {
	h, err := parseHeader(q)
	if err != nil {
		panic(fmt.Sprintf("tcp: in this rank's own queue: %v", err))
	}
	return int(h.length)
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
	o.stopFlushes()
	o.begun = 0
	o.queue, o.writing = o.writing[:0], o.queue
	return o.writing
}

// stopFlushes returns when nobody flushes any more, until open. mu is held.
func (o *controlOut) stopFlushes() {
	for o.flushing { // for one system call that does not block
		o.flushed.Wait()
	}
	o.direct = nil
}

// last ends the writing of frames: it returns what is left of one that has been
// written in part, and the sequence number of the message after that. What is still
// queued will not be written.
func (o *controlOut) last() (rest []byte, sequence uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopFlushes()
	unwritten := uint32(0)
	for q := o.queue[o.begun:]; len(q) > 0; unwritten++ {
		q = q[headerSize+length(q):]
	}
	return slices.Clone(o.queue[:o.begun]), o.sequence - unwritten
}
