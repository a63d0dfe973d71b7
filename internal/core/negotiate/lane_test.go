package negotiate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// modelLane is a whole lane in one thread: Workers, a Coordinator and a board, connected as in the engine. Nothing
// moves by itself: a test calls the steps in any order. Every message passes through the codec.
type modelLane struct {
	board   *modelBoard
	coord   *Coordinator
	ranks   []int
	members []*modelMember
	outbox  [][]byte // Responses that the coordinator could not publish yet
}

type modelMember struct {
	worker  *Worker
	read    int // records of the log
	pending map[string]*modelEntry
	join    joinState
	history []string // one line per record read, the same on all members
}

type joinState int

const (
	apart    joinState = iota
	settling           // has asked for Settle, and will join
	joining            // has asked for Join
)

type modelEntry struct {
	req    Request
	marked bool
	mark   CardGen
}

func newModelLane(ranks []int, remote bool, o Options) *modelLane {
	l := &modelLane{board: newModelBoard(len(ranks), o.Capacity, remote), ranks: ranks}
	l.coord = NewCoordinator(ranks, l.board, o)
	for i := range ranks {
		l.members = append(l.members, &modelMember{worker: NewWorker(i), pending: make(map[string]*modelEntry)})
	}
	return l
}

// submit announces a tensor, or all of a group, for member m, and returns how. If the data of the one tensor is to
// travel with its mark, data is that: a number.
func (l *modelLane) submit(m int, data *int, reqs ...*Request) string {
	mem := l.members[m]
	if mem.join != apart {
		panic(fmt.Sprintf("member %d submits %q although it joins", m, reqs[0].Name))
	}
	var entries []*modelEntry
	for _, r := range reqs {
		if mem.pending[r.Name] != nil {
			panic(fmt.Sprintf("member %d submits %q again", m, r.Name))
		}
		e := &modelEntry{req: *r}
		mem.pending[r.Name] = e
		entries = append(entries, e)
	}
	marks, cached := mem.worker.LookupGroup(nil, reqs)
	var how []string
	for _, mark := range marks {
		how = append(how, fmt.Sprintf("card %d gen %d", mark.Card, mark.Gen))
	}
	said := "mark " + strings.Join(how, ", ")
	if data != nil {
		said += fmt.Sprintf(" with %d", *data)
	}
	if cached && l.board.MarkWith(m, data, marks...) {
		for i, e := range entries {
			e.marked, e.mark = true, marks[i]
		}
		return said
	}
	for _, r := range reqs {
		l.board.Post(m, r.Append(nil))
	}
	if cached {
		return said + ": refused, post"
	}
	return "post"
}

// submitJoin lets member m join, once no mark of its can come back.
func (l *modelLane) submitJoin(m int) string {
	mem := l.members[m]
	if l.board.travels(m) {
		for _, e := range mem.pending {
			if e.marked {
				mem.join = settling
				l.board.Post(m, (&Request{Type: operation.Settle, Name: "join.noname", Device: CPUDevice}).Append(nil))
				return "settle"
			}
		}
	}
	l.postJoin(m)
	return "join"
}

func (l *modelLane) postJoin(m int) {
	l.members[m].join = joining
	l.board.Post(m, (&Request{Type: operation.Join, Name: "join.noname", Device: CPUDevice}).Append(nil))
}

// notice hands member m the first marks that have come back to that member.
func (l *modelLane) notice(m int) string {
	back := l.board.stale[m][0]
	l.board.stale[m] = l.board.stale[m][1:]
	var said []string
	for _, mark := range back.marks {
		found := false
		for _, e := range l.members[m].pending {
			if e.marked && e.mark == mark {
				found, e.marked = true, false
				l.board.Post(m, e.req.Append(nil))
				said = append(said, fmt.Sprintf("card %d gen %d is stale, post %s", mark.Card, mark.Gen, e.req.Name))
			}
		}
		if !found {
			panic(fmt.Sprintf("member %d: stale mark %v belongs to nothing", m, mark))
		}
	}
	return strings.Join(said, "; ")
}

// coordinate takes the first Request in m's mailbox. publish publishes the Responses, perhaps later, because the log
// may have no room.
func (l *modelLane) coordinate(m int) ([]*Response, error) {
	p := l.board.mailboxes[m][0].request
	l.board.mailboxes[m] = l.board.mailboxes[m][1:]
	var r Request
	if err := r.Decode(p); err != nil {
		return nil, err
	}
	resps, err := l.coord.Step([]int{m}, &r)
	for _, resp := range resps {
		l.outbox = append(l.outbox, resp.Append(nil))
	}
	clear(r.Shape) // the caller may reuse it
	clear(r.Ranks)
	return resps, err
}

// publish publishes the first Response in the outbox.
func (l *modelLane) publish() {
	l.board.Publish(l.outbox[0])
	l.outbox = l.outbox[1:]
}

// next lets member m read one record of the log and execute it.
func (l *modelLane) next(m int) (*Response, error) {
	mem := l.members[m]
	rec := l.board.log[mem.read]
	mem.read++
	how := "card " + fmt.Sprint(rec.card)
	var resp *Response
	var err error
	if rec.response != nil {
		resp, how = new(Response), "response"
		if err = resp.Decode(rec.response); err != nil {
			return nil, err
		}
		mem.worker.Apply(resp)
	} else if resp, err = mem.worker.Card(rec.card); err != nil {
		return nil, err
	} else if rec.result != nil {
		how += fmt.Sprintf(" result %d", *rec.result)
	}
	mem.history = append(mem.history, how+" "+string(resp.Append(nil)))
	e := mem.pending[resp.Name]
	switch {
	case resp.Type == operation.Settle:
		if int(resp.Root) == l.ranks[m] {
			if mem.join != settling {
				return nil, fmt.Errorf("member %d has not asked for this: %+v", m, resp)
			}
			l.postJoin(m)
		}
		return resp, nil
	case resp.Type == operation.Join:
		if mem.join != joining {
			return nil, fmt.Errorf("member %d has not joined: %+v", m, resp)
		}
		mem.join = apart
		return resp, nil
	case slices.Contains(resp.Joined, int32(m)):
		if e != nil || mem.join != joining {
			return nil, fmt.Errorf("member %d has submitted %q, or not joined, but is left out: %+v", m,
				resp.Name, resp)
		}
		return resp, nil
	case e == nil:
		return nil, fmt.Errorf("member %d has to execute %q, which it has not submitted", m, resp.Name)
	case rec.response == nil && !e.marked:
		return nil, fmt.Errorf("member %d has to execute %q by a card that it has not marked", m, resp.Name)
	case resp.Err == "" && !resp.Type.ChangesSets() && !resp.answers(&e.req, m):
		return nil, fmt.Errorf("member %d asked for %+v and got %+v", m, e.req, resp)
	}
	delete(mem.pending, resp.Name)
	return resp, nil
}

// leftover says what has not ended; empty if all has ended.
func (l *modelLane) leftover() string {
	var s []string
	for _, t := range l.coord.tallies() {
		s = append(s, fmt.Sprintf("tally %s: in %v, held %v", t.name, t.reqs, t.held))
	}
	if joined := l.coord.Joined(); len(joined) > 0 || len(l.coord.groups.held) > 0 {
		s = append(s, fmt.Sprintf("%v have joined, %v is held", joined, l.coord.groups.held))
	}
	for i := range l.board.cards {
		if marked := l.board.Marked(uint32(i)); len(marked) > 0 {
			s = append(s, fmt.Sprintf("card %d is marked by %v", i, marked))
		}
	}
	for m, mem := range l.members {
		if len(mem.pending) > 0 || mem.read < len(l.board.log) {
			s = append(s, fmt.Sprintf("member %d: %d pending, %d records unread", m, len(mem.pending),
				len(l.board.log)-mem.read))
		}
		if !slices.Equal(mem.history, l.members[0].history) {
			s = append(s, fmt.Sprintf("member %d has not seen the same as member 0", m))
		}
	}
	return strings.Join(s, "; ")
}
