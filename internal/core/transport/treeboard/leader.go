package treeboard

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// leader is the part that the root and the other leaders share: the children.
type leader struct {
	*member

	// work guards the following fields. It also keeps two goroutines from passing things on at once. A goroutine locks
	// it before the boards' locks and member.mu.
	work   sync.Mutex
	unread []int64          // by child: bytes of batches sent without credit
	owed   []int            // by child: bytes of Requests that have come and were not credited
	came   []int            // by child: the bytes of these that have been passed on; at the root, all of these
	frame  []byte           // the frame that is being sent
	marks  []transport.Mark // of the chain that is being marked
	set    []int            // of the Request that is being decoded
	early  early
}

func newLeader(m *member) leader {
	n := len(m.children)
	return leader{member: m, unread: make([]int64, n), owed: make([]int, n), came: make([]int, n),
		early: newEarly(m.tree)}
}

// release unlocks work, and then writes the frames that were sent while it was locked, in their order. It writes
// without the lock, so that no goroutine waits for a system call of another.
func (l *leader) release() {
	l.work.Unlock()
	l.Pipe.Flush()
}

// childOf returns the index of a leader among the children.
func (l *leader) childOf(from int) (int, error) {
	c, ok := l.via[from]
	if !ok {
		return 0, fmt.Errorf("board frame from member %d, which leads no host below member %d", from, l.Member)
	}
	return c, nil
}

// checkCall refuses a call that does not come from a member of this host.
func (l *leader) checkCall(from int) error {
	if !slices.Contains(l.locals[1:], from) {
		return fmt.Errorf("call frame from member %d, which is not on the host of member %d", from, l.Member)
	}
	return nil
}

func (l *leader) Linked(member int) bool {
	_, child := l.via[member]
	return child || member == l.parent
}

// receiveMarks marks cards for a child host, and reports whether that completed a card. It drops marks that come too
// late: the log tells their members so.
func (l *leader) receiveMarks(c int, body []byte) (completed bool, err error) {
	for len(body) > 0 {
		var last uint16
		if l.marks, last, body, err = cutChain(l.marks, body, l.Cards); err != nil {
			return false, err
		}
		done, _, err := l.markBelow(c, last)
		if err != nil {
			return false, err
		}
		completed = completed || done
	}
	return completed, nil
}

// markBelow marks l.marks for a child host, whose member last has marked them last. completed reports that this has
// completed a card, and late that the marks have come too late.
func (l *leader) markBelow(c int, last uint16) (completed, late bool, err error) {
	if int(last) >= l.size || l.below[last] != c {
		return false, false, fmt.Errorf("mark frame: member %d is not below member %d", last, l.children[c].leader)
	}
	r, err := l.Up.MarkFor(len(l.locals)+c, last, l.marks)
	return r == board.Completed, r == board.Stale || r == board.Closed, err
}

// receiveRequests takes the Requests of a frame, and calls f for each.
func (l *leader) receiveRequests(c int, body []byte, f func(members []int, request []byte) error) error {
	for len(body) > 0 {
		var request []byte
		var err error
		if l.set, request, body, err = cutRequest(body, l.set[:0]); err != nil {
			return fmt.Errorf("request frame: %w", err)
		}
		members := l.set
		if len(members) == 0 {
			members = l.children[c].members
		}
		if err := f(members, request); err != nil {
			return err
		}
	}
	return nil
}

// checkRequests checks a frame's Requests, so that they can be decoded later without an error.
func (l *leader) checkRequests(c int, body []byte) error {
	if l.owed[c] += 1 + len(body); l.owed[c] > requestWindow {
		return fmt.Errorf("request frame beyond the window of %d bytes", requestWindow)
	}
	return l.receiveRequests(c, body, func(members []int, _ []byte) error {
		last := -1
		for _, m := range members {
			if m <= last || m >= l.size || l.below[m] != c {
				return fmt.Errorf("request frame: member %d is not below member %d, or out of order", m,
					l.children[c].leader)
			}
			last = m
		}
		return nil
	})
}

// giveCredit gives a child back the part of its window that it has used, once that is a quarter of the window.
func (l *leader) giveCredit() {
	for c, n := range l.came {
		if n < requestWindow/4 {
			continue
		}
		l.came[c] = 0
		l.owed[c] -= n
		l.frame = appendNumber(l.frame[:0], kindCredit, uint32(n))
		l.Pipe.Send(l.children[c].leader, l.frame)
	}
}

// receiveCredit takes back a part of a child's window of batches.
func (l *leader) receiveCredit(c int, n uint32) error {
	if l.unread[c] -= int64(n); l.unread[c] < 0 {
		return fmt.Errorf("credit for %d bytes, of %d sent", n, l.unread[c]+int64(n))
	}
	return nil
}

// open reports whether every child has room for another batch.
func (l *leader) open() bool {
	for _, n := range l.unread {
		if n >= batchWindow {
			return false
		}
	}
	return true
}

// forward sends a batch to the children.
func (l *leader) forward(frame []byte) {
	for c := range l.children {
		l.unread[c] += int64(len(frame))
		l.Pipe.Send(l.children[c].leader, frame)
	}
}

// end tells all below that the log has ended. It tells the children first: this rank's driver may leave as soon as this
// host's board says that the log has ended, and then the Pipe takes no more frames.
func (l *leader) end(by int) {
	l.frame = appendNumber(l.frame[:0], kindClosed, uint32(by))
	for c := range l.children {
		l.Pipe.Send(l.children[c].leader, l.frame)
	}
	if l.ok(l.Down.End(by)) {
		l.ringAll()
	}
}

// closer is the member that has closed this host's board. If no member of this host has closed it, closer returns
// closedBelow, the member that a child's frame has named.
func (l *leader) closer(closedBelow int) int {
	if by := l.Up.ClosedBy(); by < len(l.locals) {
		return l.locals[by]
	}
	return closedBelow
}

// Quiesce does what member.Quiesce does. After it the leader passes nothing on.
func (l *leader) Quiesce() {
	l.work.Lock()
	defer l.work.Unlock()
	l.member.Quiesce()
}
