package timeline

import (
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// kind says which method of Timeline made an event.
type kind uint8

const (
	cycleStart kind = iota
	negotiateStart
	rankReady
	submitted
	negotiateEnd
	opStart
	activityStart
	activityEnd
	opEnd
)

// opens reports whether the event begins a phase, which another event then ends.
func (k kind) opens() bool { return k == negotiateStart || k == opStart || k == activityStart }

// maxDims is how many dimensions of a shape fit into an event.
const maxDims = 8

// event is one call, on its way to the file.
type event struct {
	at    int64 // ns since the trace began
	name  string
	text  string // the operation or the activity
	kind  kind
	rank  int32 // of rankReady and submitted; the process set of negotiateEnd
	ahead bool  // of negotiateEnd, as order
	order uint64
	dtype tensor.DType
	ndim  uint8 // of the shape; dims holds at most the first maxDims
	dims  [maxDims]int64
}

// queue is a bounded queue of events for many producers and one consumer, after D. Vyukov's bounded MPMC queue. A
// producer that is descheduled in the middle delays the consumer, never another producer.
//
// A cell's turn says who may use it:
//
//	p: the producer of position p may fill it
//	p+1: the consumer may read it
//	p+len(cells): it is free again
type queue struct {
	cells []cell // a power of two
	_     [64]byte
	tail  atomic.Uint64 // the next position to fill
	_     [64]byte
	head  atomic.Uint64 // the next position to read, or an earlier one; the consumer stores it now and then
	_     [64]byte
	next  uint64 // the consumer's own head
}

type cell struct {
	turn atomic.Uint64
	event
}

// newQueue makes a queue of size cells, a power of two.
func newQueue(size int) *queue {
	q := &queue{cells: make([]cell, size)}
	for i := range q.cells {
		q.cells[i].turn.Store(uint64(i))
	}
	return q
}

// claim gives the caller a cell to fill and then publish, or nil if the queue is full. For an event that opens a phase,
// the last eighth counts as full. So there is room for events that end phases, and whole phases are left out together.
func (q *queue) claim(k kind) (c *cell, pos uint64) {
	size := uint64(len(q.cells))
	for {
		head := q.head.Load() // load head before tail, because tail must not be the smaller one
		pos = q.tail.Load()
		if k.opens() && pos-head >= size-size/8 {
			return nil, 0
		}
		c = &q.cells[pos&(size-1)]
		switch turn := c.turn.Load(); {
		case turn == pos:
			if q.tail.CompareAndSwap(pos, pos+1) {
				return c, pos
			}
		case turn < pos: // the cell has not been read since the last round
			return nil, 0
		}
	}
}

// publish hands a claimed cell to the consumer.
func (c *cell) publish(pos uint64) { c.turn.Store(pos + 1) }

// front is the oldest event; nil if there is none. Only the consumer calls it, and owns the event until pop.
func (q *queue) front() *event {
	c := &q.cells[q.next&uint64(len(q.cells)-1)]
	if c.turn.Load() != q.next+1 {
		return nil
	}
	return &c.event
}

// pop frees the cell of front. Only the consumer calls it.
func (q *queue) pop() {
	c := &q.cells[q.next&uint64(len(q.cells)-1)]
	c.name, c.text = "", ""
	c.turn.Store(q.next + uint64(len(q.cells)))
	q.next++
	if q.next%256 == 0 { // seldom, because producers read it
		q.head.Store(q.next)
	}
}

// release tells producers how much room there is. Only the consumer calls it.
func (q *queue) release() { q.head.Store(q.next) }

// claimed is how many events are claimed and not popped, published or not. Only the consumer calls it.
func (q *queue) claimed() int64 { return int64(q.tail.Load() - q.next) }
