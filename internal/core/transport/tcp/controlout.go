package tcp

import (
	"fmt"
	"sync"

	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// lanePipe is a lane's Pipe for its board.
type lanePipe lane

var _ treeboard.Pipe = (*lanePipe)(nil)

func (p *lanePipe) Send(to int, frame []byte) { p.controlOut[to].send(frame) }
func (p *lanePipe) Flush()                    { p.unflushed.flush() }

// controlOut carries this member's board frames to one other member. All frames are queued. flush writes as much of the
// queue as the socket has room for, without the lock. The goroutine run writes the rest, and all frames that are queued
// before there is a connection. Only one of them writes at a time (turn), and takes the whole queue, so the frames stay
// in order.
type controlOut struct {
	lane *lane
	to   int
	news chan struct{} // capacity 1: queue is not empty

	mu       sync.Mutex
	started  bool      // run has been started, or connectsHere has returned true
	turn     turn      // who may write
	flushed  sync.Cond // on mu: a flush has written
	writer   *writer   // for flushes; nil until run has connected
	listed   bool      // in unflushed
	queue    []byte    // messages that nobody has begun to write, except for the first begun bytes
	begun    int       // the bytes of queue that are the rest of a partly written message
	sequence uint32    // of the next message
	writing  []byte    // the bytes that are, or were, being written; swapped with queue by the writer
}

// turn says who may write to the connection.
//
//	RUNS ── run has written all ──▶ ANYONES ── flush ──▶ FLUSHING ── all is written ──▶ ANYONES
//	 ▲                                 │                    │
//	 │                                 │                    └─ the socket has no room ──▶ RUNS
//	 └───── the lane or the network ends, once nobody flushes
type turn uint8

const (
	runs     turn = iota // run's, which connects first, and may block; frames wait in the queue
	anyones              // the first goroutine that flushes; run waits for news
	flushing             // a flush's, which makes one system call without the lock
)

func (o *controlOut) init(l *lane, to int) {
	o.lane, o.to, o.news = l, to, make(chan struct{}, 1)
	o.flushed.L = &o.mu
}

// send queues a frame. It drops a frame for a member that has left: either that member's log is closed, or departed
// finds that it is not.
func (o *controlOut) send(frame []byte) {
	n, rank := o.lane.net, o.lane.members[o.to]
	if n.peers[rank].left.Load() || n.ending() || isClosed(o.lane.closed) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if limit := treeboard.QueueLimit(n.cfg.Cards, n.cfg.Early); len(o.queue)+headerSize+len(frame) > limit {
		n.Abort(fmt.Errorf("more than %d bytes of board frames wait for rank %d", limit, rank))
		return
	}
	var head [headerSize]byte
	header{messageBoard, o.sequence, uint64(len(frame))}.put(head[:])
	o.sequence++
	o.queue = append(append(o.queue, head[:]...), frame...)
	switch {
	case o.turn == runs:
		o.leaveToRun()
	case !o.listed:
		o.listed = true
		o.lane.unflushed.add(o)
	}
}

// leaveToRun leaves the queue to run. mu is held.
func (o *controlOut) leaveToRun() {
	select {
	case o.news <- struct{}{}:
	default: // run has been told already
	}
	if !o.started {
		o.started = true
		o.lane.net.start(&o.lane.net.farewells, o.run)
	}
}

// connectsHere makes the caller the only one that connects. It returns false if run connects, or has connected.
func (o *controlOut) connectsHere() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started {
		return false
	}
	o.started = true
	return true
}
