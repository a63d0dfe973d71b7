package tcp

import (
	"fmt"
	"slices"
	"sync"
)

// unflushed lists the controlOuts with frames that nobody has begun to write.
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

// flush writes the queue, if it is anyone's turn.
func (o *controlOut) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listed = false
	for o.turn == anyones && len(o.queue) > 0 {
		o.turn = flushing
		p := o.swap()
		o.mu.Unlock()
		written := o.writer.write(p, nil)
		o.mu.Lock()
		o.turn = anyones
		o.flushed.Broadcast()
		if written < len(p) {
			o.keep(p, written)
		}
	}
}

// swap returns the queue, which the caller then writes, and begins a new one. mu is held, and it is the caller's turn.
func (o *controlOut) swap() []byte {
	o.queue, o.writing = o.writing[:0], o.queue
	return o.writing
}

// keep leaves the rest of p, which a flush could not write, to run, and all frames that have come since. mu is held.
func (o *controlOut) keep(p []byte, written int) {
	at := 0
	for at < written {
		at += headerSize + length(p[at:])
	}
	o.begun = at - written
	o.queue = slices.Insert(o.queue, 0, p[written:]...)
	o.turn = runs
	o.leaveToRun()
}

// length is the payload's length of the first message in q, a queue of this rank.
func length(q []byte) int {
	h, err := parseHeader(q)
	if err != nil {
		panic(fmt.Sprintf("tcp: in this rank's own queue: %v", err))
	}
	return int(h.length)
}
