package treeboard

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// relay is the leader of a host that is not the root's. The goroutine that receives a frame passes its contents on at
// once. The driver passes on the marks and Requests of this host's members: at its turn it puts all of them into one
// frame. So no member waits for a write.
type relay struct {
	leader
	combiner transport.Combiner // nil: Requests go on as they are

	// Guarded by work.
	//
	// Up:
	outbox  []byte // encoded Requests for which the parent has no room
	posted  int    // bytes of Requests without credit
	subtree int    // the number of members below, this host's included
	closing bool   // the close frame has been sent
	closeBy int    // the member that a child's close frame has named
	one     [1]int
	pass    func([]int, []byte)
	failed  error // of pass or take
	take    func([]int, []byte)
	// Down:
	inbox     []byte // waiting batch frames, each after its length; the first is at next
	next      int
	queued    int  // bytes of batches that have come and were not credited
	relayed   int  // the bytes of these that have been relayed
	forwarded bool // the next batch has been sent to the children
	records   []transport.Record
	closedBy  int // -1 until the closed frame has come
	ended     bool
}

func newRelay(m *member) *relay {
	l := &relay{leader: newLeader(m), subtree: len(m.subtree()), closedBy: -1, closeBy: -1}
	if m.Combine != nil {
		l.combiner = m.Combine(m.subtree())
	}
	l.pass = func(members []int, request []byte) {
		if len(members) == l.subtree {
			members = nil
		}
		l.outbox = appendRequest(put(l.outbox, 0), members, request)
	}
	l.take = func(from []int, request []byte) {
		l.one[0] = l.locals[from[0]]
		if err := l.combine(l.one[:], request); err != nil && l.failed == nil {
			l.failed = fmt.Errorf("request of member %d: %w", l.one[0], err)
		}
	}
	return l
}

// Poller implements Board.
func (l *relay) Poller() transport.BoardPoller { return l }

// Poll passes on the marks and Requests of the host's members, and batches that waited for room. Only here operands are
// combined.
func (l *relay) Poll() {
	l.work.Lock()
	defer l.release()
	if l.gone {
		return
	}
	l.sendMarks(true)
	l.sendUp()
	l.descend()
}

// Cut has nothing to do: the root cuts.
func (l *relay) Cut() {}

func (l *relay) Close() {
	l.close()
	l.work.Lock()
	defer l.release()
	if !l.gone {
		l.passOn()
	}
}

// passOn is Poll on any goroutine. work is held.
func (l *relay) passOn() {
	l.climb()
	l.descend()
}

// climb sends the parent the completed marks, the Requests and the close of this subtree, on any goroutine. No Request
// may overtake a mark of its sender, so marks do not wait for the driver here. work is held.
func (l *relay) climb() {
	l.passMarks()
	l.sendUp()
}

// sendUp sends the parent the Requests and the close of this subtree. work is held.
func (l *relay) sendUp() {
	l.sendRequests()
	if len(l.outbox) == 0 {
		if !l.ok(l.Up.TakeRequests(l.take)) || !l.ok(l.failed) {
			return
		}
		l.sendRequests()
	}
	if len(l.outbox) == 0 {
		l.giveCredit()
	}
	if !l.closing && l.Up.ClosedBy() >= 0 {
		l.closing = true
		l.passMarks() // no mark may come after the end
		l.frame = appendNumber(l.frame[:0], kindClose, uint32(l.closer(l.closeBy)))
		l.Pipe.Send(l.parent, l.frame)
	}
}

// completed passes on the cards that a frame has completed. If operands of this host may have to be combined for them,
// it leaves that to the driver, whose rank waits for these operations, and does nothing else meanwhile. work is held.
func (l *relay) completed() {
	if len(l.locals) > 1 && l.sentAhead() {
		l.Ring()
		return
	}
	l.passMarks()
}

// passMarks is sendMarks on any goroutine. Where operands would have to be combined, it leaves them behind.
func (l *relay) passMarks() { l.sendMarks(len(l.locals) == 1) }

// sendMarks sends the cards that all below have marked: in one frame, and those for which all of these have sent
// operands in another one, unless operands are to be left behind. work is held.
func (l *relay) sendMarks(operands bool) {
	l.frame = append(l.frame[:0], byte(kindMark))
	l.early.frame = append(l.early.frame[:0], byte(kindOperands))
	for {
		records, err := l.Up.Next(0)
		if !l.ok(err) {
			return
		}
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			r.Last = l.Up.Last(r.Card)
			early := false
			if operands {
				early, err = l.appendOperands(r)
			} else {
				l.early.forget(r.Card, r.Gen)
			}
			if !l.ok(err) {
				return
			}
			if !early {
				l.frame = appendMark(l.frame, r)
			}
		}
		// A frame has room for as many marks as there are cards.
		if len(l.frame) > 1 && len(l.frame)+markBytes*len(records) > 4*l.Cards {
			l.Pipe.Send(l.parent, l.frame)
			l.frame = l.frame[:1]
		}
	}
	if len(l.frame) > 1 {
		l.Pipe.Send(l.parent, l.frame)
	}
	if len(l.early.frame) > 1 {
		l.Pipe.Send(l.parent, l.early.frame)
	}
}

// combine takes a Request from below.
func (l *relay) combine(members []int, request []byte) error {
	if l.combiner == nil {
		l.pass(members, request)
		return nil
	}
	return l.combiner.Take(members, request, l.pass)
}

// sendRequests sends as many Requests as the parent has room for. Four bytes precede each Request in outbox; they are
// not sent.
func (l *relay) sendRequests() {
	for len(l.outbox) > 0 {
		l.frame = append(l.frame[:0], byte(kindRequest))
		rest := l.outbox
		for len(rest) > 0 {
			n := requestBytes(rest[4:])
			if l.posted+len(l.frame)+n > requestWindow {
				break
			}
			l.frame = append(l.frame, rest[4:4+n]...)
			rest = rest[4+n:]
		}
		if len(l.frame) == 1 {
			return
		}
		l.posted += len(l.frame)
		l.Pipe.Send(l.parent, l.frame)
		l.outbox = l.outbox[:copy(l.outbox, rest)]
	}
}

// requestBytes is the size in bytes of the first Request of p.
func requestBytes(p []byte) int {
	n := 4 + 4*int(number(p))
	return n + 4 + int(number(p[n:]))
}

func (l *relay) Receive(from int, frame []byte) error {
	k, body, err := l.split(frame)
	if err != nil {
		return err
	}
	if k == kindCall {
		if err := l.checkCall(from); err != nil {
			return err
		}
		l.work.Lock()
		defer l.release()
		if !l.gone {
			l.passOn()
		}
		return nil
	}
	l.work.Lock()
	defer l.release()
	if l.gone {
		return nil
	}
	if from == l.parent {
		err = l.receiveDown(k, body, frame)
	} else {
		err = l.receiveUp(from, k, body)
	}
	return err
}

// receiveUp takes a child's frame. work is held.
func (l *relay) receiveUp(from int, k kind, body []byte) error {
	c, err := l.childOf(from)
	if err != nil {
		return err
	}
	switch k {
	case kindMark:
		completed, err := l.receiveMarks(c, body)
		if completed {
			l.completed()
		}
		return err
	case kindOperands:
		completed, err := l.receiveOperands(c, body)
		if completed {
			l.completed()
		}
		return err
	case kindRequest:
		if err := l.checkRequests(c, body); err != nil {
			return err
		}
		l.came[c] += 1 + len(body)
		if err := l.receiveRequests(c, body, l.combine); err != nil {
			return err
		}
		l.climb()
	case kindClose:
		by := number(body)
		if int64(by) >= int64(l.size) || l.below[by] != c {
			return fmt.Errorf("close frame for member %d", by)
		}
		if l.Up.ClosedBy() < 0 {
			l.closeBy = int(by)
		}
		if err := l.Up.Close(len(l.locals) + c); err != nil {
			return err
		}
		l.climb()
	case kindCredit:
		if err := l.receiveCredit(c, number(body)); err != nil {
			return err
		}
		l.descend()
	default:
		return fmt.Errorf("%v frame from below", k)
	}
	return nil
}

// receiveDown takes a frame of the parent. work is held.
func (l *relay) receiveDown(k kind, body, frame []byte) error {
	if l.closedBy >= 0 && k != kindCredit {
		return fmt.Errorf("%v frame after the log was closed", k)
	}
	switch k {
	case kindBatch:
		if l.queued >= batchWindow {
			return fmt.Errorf("batch frame although %d bytes of batches wait; the window is %d", l.queued, batchWindow)
		}
		var err error
		if l.records, err = cutBatch(l.records, body, l.Cards); err != nil {
			return err
		}
		l.queued += len(frame)
		if l.next == len(l.inbox) && l.repeat(frame) {
			return nil
		}
		l.keep(frame)
	case kindClosed:
		by := number(body)
		if int64(by) >= int64(l.size) {
			return fmt.Errorf("closed by member %d of %d", by, l.size)
		}
		l.closedBy = int(by)
		l.descend()
	case kindCredit:
		n := number(body)
		if int64(n) > int64(l.posted) {
			return fmt.Errorf("credit for %d bytes, of %d posted", n, l.posted)
		}
		l.posted -= int(n)
		l.climb()
	default:
		return fmt.Errorf("%v frame from above", k)
	}
	return nil
}

// keep appends a batch that cannot be relayed now to the inbox. work is held.
func (l *relay) keep(frame []byte) {
	if l.next > 0 {
		l.inbox = l.inbox[:copy(l.inbox, l.inbox[l.next:])]
		l.next = 0
	}
	l.inbox = append(put(l.inbox, uint32(len(frame))), frame...)
}

// descend relays the batches that wait, and the log's end. work is held.
func (l *relay) descend() {
	for l.next < len(l.inbox) {
		n := int(number(l.inbox[l.next:]))
		frame := l.inbox[l.next+4 : l.next+4+n]
		var err error
		if l.records, err = cutBatch(l.records, frame[1:], l.Cards); !l.ok(err) || !l.repeat(frame) {
			return
		}
		l.next += 4 + n
	}
	if l.closedBy >= 0 && !l.ended {
		l.ended = true
		l.end(l.closedBy)
	}
}

// repeat passes a batch, whose records are decoded, to the children and to this host's members. It returns false if the
// batch must wait for room in one of them. work is held.
func (l *relay) repeat(frame []byte) bool {
	if !l.forwarded {
		if !l.open() {
			return false
		}
		retired := false
		for _, r := range l.records {
			if r.Kind != transport.RecordRetired {
				continue
			}
			retired = true
			if !l.ok(l.Up.Forget(r.Card, r.Gen)) {
				return false
			}
			l.early.forget(r.Card, r.Gen)
		}
		if retired {
			// Marks of a generation that has ended leave the board before anybody can know the next generation.
			l.passMarks()
		}
		l.forward(frame)
		l.countResults(l.records)
		l.forwarded = true
	}
	if room, err := l.Down.Relay(l.records); !l.ok(err) || !room {
		return false
	}
	l.forwarded = false
	l.relayed += len(frame)
	if l.relayed >= batchWindow/4 {
		l.queued -= l.relayed
		l.frame = appendNumber(l.frame[:0], kindCredit, uint32(l.relayed))
		l.Pipe.Send(l.parent, l.frame)
		l.relayed = 0
	}
	l.ringAll()
	return true
}
