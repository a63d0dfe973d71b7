package treeboard

import (
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// root is member 0, which leads the root's host. Its driver cuts the lane's log.
type root struct {
	leader

	// Guarded by work.
	requests []byte // request frames that the driver has not taken: child, length, body
	closeBy  int    // the member that a child's close frame has named
	held     []transport.Record
	ended    bool

	// The driver's.
	reading []byte // request frames that Poll has taken and TakeRequests has not passed on; swapped with requests
	who     []int  // the members of the Request that is being decoded
	// onRequest calls request with one. It is made once, because a closure is an allocation.
	onRequest func(from []int, p []byte)
	request   func(from []int, p []byte)
	one       [1]int
}

func newRoot(m *member) *root {
	r := &root{leader: newLeader(m), closeBy: -1}
	r.onRequest = func(from []int, p []byte) {
		r.one[0] = r.locals[from[0]]
		r.request(r.one[:], p)
	}
	return r
}

func (r *root) Receive(from int, frame []byte) error {
	k, body, err := r.split(frame)
	if err != nil {
		return err
	}
	if k == kindCall {
		if err := r.checkCall(from); err != nil {
			return err
		}
		r.Ring() // the driver does the rest: Receive's caller makes it drive
		return nil
	}
	c, err := r.childOf(from)
	if err != nil {
		return err
	}
	r.work.Lock()
	defer r.work.Unlock()
	if r.gone {
		return nil
	}
	switch k {
	case kindMark:
		completed, err := r.receiveMarks(c, body)
		if err != nil || !completed {
			return err
		}
	case kindOperands:
		completed, err := r.receiveOperands(c, body)
		if err != nil || !completed {
			return err
		}
	case kindRequest:
		if err := r.checkRequests(c, body); err != nil {
			return err
		}
		r.came[c] += 1 + len(body)
		r.requests = append(put(put(r.requests, uint32(c)), uint32(len(body))), body...)
	case kindClose:
		by := number(body)
		if int64(by) >= int64(r.size) || r.below[by] != c {
			return fmt.Errorf("close frame for member %d", by)
		}
		if r.Up.ClosedBy() < 0 {
			r.closeBy = int(by)
		}
		if err := r.Up.Close(len(r.locals) + c); err != nil {
			return err
		}
	case kindCredit:
		if err := r.receiveCredit(c, number(body)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%v frame from below", k)
	}
	r.Ring()
	return nil
}

// Coordination implements Board.
func (r *root) Coordination() transport.Coordination { return r }

// Poller implements Board.
func (r *root) Poller() transport.BoardPoller { return r }

// Poll takes the Requests that the children have sent, and gives the children credit for them. It takes none while
// TakeRequests has not passed on the last ones: then the children's windows are used up.
func (r *root) Poll() {
	if len(r.reading) > 0 {
		return
	}
	r.work.Lock()
	if len(r.requests) == 0 || r.gone {
		r.work.Unlock()
		return
	}
	r.requests, r.reading = r.reading[:0], r.requests
	r.giveCredit()
	r.release()
}

// Cut cuts the next batch and relays it, and tells all of the log's end. While a child's window is used up, it cuts no
// batch. The child's credit rings the bell.
func (r *root) Cut() {
	r.work.Lock()
	defer r.release()
	if r.gone {
		return
	}
	if len(r.held) == 0 {
		if !r.open() {
			return
		}
		var err error
		if r.held, err = r.Up.Next(0); !r.ok(err) {
			return
		}
		if len(r.held) == 0 {
			r.finish()
			return
		}
		if !r.ok(r.sendBatch()) {
			return
		}
	}
	if room, err := r.Down.Relay(r.held); !r.ok(err) || !room {
		return
	}
	r.held = nil
	r.finish()
	for i := 1; i < len(r.locals); i++ {
		r.RingLocal(i)
	}
}

// sendBatch completes the records of a batch that has just been cut, and sends them to the children. work is held.
func (r *root) sendBatch() error {
	r.early.results = r.early.results[:0]
	r.frame = append(r.frame[:0], byte(kindBatch))
	for i := range r.held {
		rec := &r.held[i]
		if rec.Kind == transport.RecordCard {
			rec.Last = r.Up.Last(rec.Card)
			if err := r.fold(rec); err != nil {
				return err
			}
		}
		r.frame = appendRecord(r.frame, *rec)
	}
	if len(r.children) > 0 {
		r.forward(r.frame)
		r.countResults(r.held)
	}
	return nil
}

// finish tells the others, once, that the log has ended. work is held.
func (r *root) finish() {
	if !r.ended && r.Up.Drained(0) {
		r.ended = true
		r.end(r.closer(r.closeBy))
	}
}

func (r *root) ClosedBy() int {
	r.work.Lock()
	defer r.work.Unlock()
	if r.gone || r.Up.ClosedBy() < 0 {
		return -1
	}
	return r.closer(r.closeBy)
}

// TakeRequests passes on the Requests of this host's members, and those that Poll has taken.
func (r *root) TakeRequests(f func(from []int, p []byte)) {
	r.request = f
	r.ok(r.Up.TakeRequests(r.onRequest))
	for rest := r.reading; len(rest) > 0; {
		c, n := number(rest), number(rest[4:])
		body := rest[8 : 8+n]
		rest = rest[8+n:]
		for len(body) > 0 {
			var p []byte
			var err error
			if r.who, p, body, err = cutRequest(body, r.who[:0]); err != nil {
				panic(fmt.Sprintf("tree board: a frame that was checked when it came: %v", err))
			}
			members := r.who
			if len(members) == 0 {
				members = r.children[c].members
			}
			f(members, p)
		}
	}
	r.reading = r.reading[:0]
}

func (r *root) Publish(responses ...[]byte) int {
	published, err := r.Up.Publish(responses...)
	r.ok(err)
	return published
}

func (r *root) Acquire() (card, gen uint32, ok bool) {
	card, gen, ok, err := r.Up.Acquire()
	return card, gen, r.ok(err) && ok
}

// Retire takes back the marks of this host's members. The members on other hosts get theirs back when they read the
// log.
func (r *root) Retire(card uint32) (marked []int, ok bool) {
	r.work.Lock()
	defer r.work.Unlock()
	who, ok, err := r.Up.Retire(card)
	for c := range r.early.from {
		r.early.from[c].dropAll(card)
	}
	if !r.ok(err) {
		return nil, false
	}
	for _, i := range who {
		if i < len(r.locals) {
			marked = append(marked, r.locals[i])
		}
	}
	return marked, ok
}

// Marked lists the members of this host that have marked the card, and all members below a child that have all marked
// it.
func (r *root) Marked(card uint32) []int {
	who, err := r.Up.Marked(card)
	if !r.ok(err) {
		return nil
	}
	var marked []int
	for _, i := range who {
		if i < len(r.locals) {
			marked = append(marked, r.locals[i])
		} else {
			marked = append(marked, r.children[i-len(r.locals)].members...)
		}
	}
	slices.Sort(marked)
	return marked
}
