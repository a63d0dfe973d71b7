package tcp

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// boardPoller gives a leader its turn: the driver takes the frames that have come for its board, and the board passes
// on what these have completed.
type boardPoller struct {
	transport.BoardPoller
	lane *lane
}

func (b *boardPoller) Poll() {
	b.lane.takeFrames()
	b.BoardPoller.Poll()
}

// takeFrames takes the frames that have come for the board. Only the driver calls it.
func (l *lane) takeFrames() {
	l.polls.Add(1)
	for _, m := range l.linked {
		l.controlIn[m].take()
	}
}

// take takes the frames that have come, and reports whether there were any.
// Safe on any goroutine; it does not block.
func (i *controlIn) take() (took bool) {
	if i.lent() == nil {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for c := i.lent(); c != nil; c = i.lent() {
		n, err := c.receive(&i.scatter, nil, i.buffer[i.filled:])
		if n == 0 && err == nil {
			return took
		}
		i.filled += n
		drained := i.filled < len(i.buffer)
		sequence := i.sequence
		if err != nil || !i.cut(c) {
			c.recall()
		}
		took = took || i.sequence != sequence
		if drained {
			return took
		}
	}
	return took
}

// cut passes the whole frames in the buffer, which came over c, on to the board, and keeps the rest. It returns false
// if the rest is no frame. i.mu is held.
func (i *controlIn) cut(c *conn) bool {
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
		i.receive(c, rest[headerSize:whole])
		rest = rest[whole:]
	}
	i.filled = copy(i.buffer, rest)
	return good
}

// receive gives the board a frame that has come over c.
func (i *controlIn) receive(c *conn, frame []byte) {
	if err := i.lane.board.Receive(i.from, frame); err != nil && !c.abandoned() {
		i.lane.net.Abort(fmt.Errorf("connection with %v: lane %d: %w", c, i.lane.id, err))
	}
}
