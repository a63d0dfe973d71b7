package negotiate

import (
	"fmt"
	"slices"
	"strings"
)

// modelLane is a whole lane in one thread: Workers, a Coordinator and a board,
// joined as the engine joins them. Nothing moves by itself; a test calls the
// steps in whatever order it likes. Every message passes through the codec.
type modelLane struct {
	board   *modelBoard
	coord   *Coordinator
	members []*modelMember
	outbox  [][]byte // Responses that the coordinator could not publish yet
}

type modelMember struct {
	worker  *Worker
	read    int // records of the log
	pending map[string]*modelEntry
	history []string // one line per record read, the same on all members
}

type modelEntry struct {
	req    Request
	marked bool
	mark   slotMark
}

func newModelLane(ranks []int, capacity int, remote bool) *modelLane {
	l := &modelLane{board: newModelBoard(len(ranks), capacity, remote)}
	l.coord = NewCoordinator(ranks, l.board, Options{Capacity: capacity})
	for i := range ranks {
		l.members = append(l.members, &modelMember{worker: NewWorker(i), pending: make(map[string]*modelEntry)})
	}
	return l
}

// submit announces r for member m, and says how.
func (l *modelLane) submit(m int, r *Request) string {
	mem := l.members[m]
	if mem.pending[r.Name] != nil {
		panic(fmt.Sprintf("member %d submits %q again", m, r.Name))
	}
	e := &modelEntry{req: *r}
	mem.pending[r.Name] = e
	slot, gen, cached := mem.worker.Lookup(r)
	if cached && l.board.Mark(m, slot, gen) {
		e.marked, e.mark = true, slotMark{slot, gen}
		return fmt.Sprintf("mark slot %d gen %d", slot, gen)
	}
	l.board.Post(m, r.Append(nil))
	if cached {
		return fmt.Sprintf("mark slot %d gen %d: refused, post", slot, gen)
	}
	return "post"
}

// notice hands member m the first mark that came back to it.
func (l *modelLane) notice(m int) string {
	back := l.board.stale[m][0]
	l.board.stale[m] = l.board.stale[m][1:]
	for _, e := range l.members[m].pending {
		if e.marked && e.mark == back {
			e.marked = false
			l.board.Post(m, e.req.Append(nil))
			return fmt.Sprintf("slot %d gen %d is stale, post %s", back.slot, back.gen, e.req.Name)
		}
	}
	panic(fmt.Sprintf("member %d: stale mark %v belongs to nothing", m, back))
}

// coordinate takes the first Request in m's mailbox. What it leads to is
// published by publish, which may be later: the log may have no room.
func (l *modelLane) coordinate(m int) ([]*Response, error) {
	p := l.board.mail[m][0]
	l.board.mail[m] = l.board.mail[m][1:]
	var r Request
	if err := r.Decode(p); err != nil {
		return nil, err
	}
	resps, err := l.coord.Step(m, &r)
	for _, resp := range resps {
		l.outbox = append(l.outbox, resp.Append(nil))
	}
	clear(r.Shape) // it is the caller's again
	return resps, err
}

// publish publishes the first Response in the outbox.
func (l *modelLane) publish() {
	l.board.Publish(l.outbox[0])
	l.outbox = l.outbox[1:]
}

// next lets member m read one record of the log and execute it. The Request
// is the one that it had submitted.
func (l *modelLane) next(m int) (*Response, *Request, error) {
	mem := l.members[m]
	rec := l.board.log[mem.read]
	mem.read++
	how := "slot " + fmt.Sprint(rec.slot)
	var resp *Response
	var err error
	if rec.response != nil {
		resp, how = new(Response), "response"
		if err = resp.Decode(rec.response); err != nil {
			return nil, nil, err
		}
		mem.worker.Apply(resp)
	} else if resp, err = mem.worker.Slot(rec.slot); err != nil {
		return nil, nil, err
	}
	e := mem.pending[resp.Name]
	if e == nil {
		return nil, nil, fmt.Errorf("member %d has to execute %q, which it has not submitted", m, resp.Name)
	}
	if rec.response == nil && !e.marked {
		return nil, nil, fmt.Errorf("member %d has to execute %q by a slot that it has not marked", m, resp.Name)
	}
	if resp.Err == "" && !resp.answers(&e.req, m) {
		return nil, nil, fmt.Errorf("member %d asked for %+v and got %+v", m, e.req, resp)
	}
	delete(mem.pending, resp.Name)
	mem.history = append(mem.history, how+" "+fmt.Sprintf("%+v", *resp))
	return resp, &e.req, nil
}

// leftover says what has not come to an end; empty if all has.
func (l *modelLane) leftover() string {
	var s []string
	l.coord.Pending(func(name string, _ RequestType, present, missing []int) {
		s = append(s, fmt.Sprintf("tally %s: in %v, missing %v", name, present, missing))
	})
	for i := range l.board.slots {
		if marked := l.board.Marked(uint32(i)); len(marked) > 0 {
			s = append(s, fmt.Sprintf("slot %d is marked by %v", i, marked))
		}
	}
	for m, mem := range l.members {
		if len(mem.pending) > 0 || mem.read < len(l.board.log) {
			s = append(s, fmt.Sprintf("member %d: %d pending, %d records unread", m, len(mem.pending), len(l.board.log)-mem.read))
		}
		if !slices.Equal(mem.history, l.members[0].history) {
			s = append(s, fmt.Sprintf("member %d has not seen the same as member 0", m))
		}
	}
	return strings.Join(s, "; ")
}
