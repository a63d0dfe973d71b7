package rendezvous

import (
	"net"
	"slices"
	"time"
)

// gatherTime is how long the server waits for further answers before it passes some of them on. Equal answers are
// passed on as one: where many ranks ask at a time, they mostly wait for the same operations, and each wants all
// answers. So what the server sends to all of them grows with the number of ranks, and not with its square.
const gatherTime = 100 * time.Millisecond

// relay is the server's state of one peer, for questions among the members of a generation. The server asks a member
// one question at a time, however many ranks ask: its next answer goes to all of them. Each member keeps only its last
// answer, and an asker gets answers as fast as it reads them. So memory stays small, with many askers and with slow
// ones. Guarded by Server.mu.
type relay struct {
	asked    bool      // the server waits for the peer's answer
	answer   []byte    // the last answer; nil if there is none, and not if it is empty
	answered time.Time // when answer came
	asks     uint64    // the highest number of the peer's own Asks
	survey   *survey   // the peer's own open Ask; nil if it has none
}

// survey is one peer's Ask that is not complete.
type survey struct {
	use      uint64
	awaiting map[*peer]struct{} // members that have not answered
	ready    []*peer            // members that have answered; the asker has not got their answers
	gathers  bool               // it waits for further answers
	due      []*sharedAnswer    // to pass on now
}

// sharedAnswer is an answer, and the ranks that have given it, ascending.
type sharedAnswer struct {
	value []byte
	ranks []int
}

// ask begins a survey for p. It replaces p's earlier survey.
func (s *Server) ask(p *peer, use uint64) {
	if use <= p.asks {
		return // a later Ask came first, and its answers serve both
	}
	p.asks = use
	s.send(p, message{Type: typeAsking, Use: use})
	v := &survey{use: use, awaiting: map[*peer]struct{}{}}
	p.survey = v
	for _, q := range p.gen.members {
		if _, connected := s.peers[q]; !connected {
			continue
		}
		if q.answer != nil && time.Since(q.answered) < s.freshTime {
			v.ready = append(v.ready, q)
			continue
		}
		v.awaiting[q] = struct{}{}
		if !q.asked {
			q.asked = true
			s.send(q, message{Type: typeQuestion})
		}
	}
	s.gather(p)
}

// gather passes on the ready answers of p's survey if they are the last ones, and else a little later.
func (s *Server) gather(p *peer) {
	v := p.survey
	switch {
	case len(v.awaiting) == 0:
		v.pass()
		p.rouse()
	case len(v.ready) > 0 && !v.gathers:
		v.gathers = true
		time.AfterFunc(s.gatherTime, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			v.gathers = false
			v.pass()
			p.rouse()
		})
	}
}

// pass makes the ready answers due, equal ones together. A member that has gone since has no answer any more.
func (v *survey) pass() {
	slices.SortFunc(v.ready, func(a, b *peer) int { return a.Rank - b.Rank })
	equal := map[string]*sharedAnswer{}
	for _, q := range v.ready {
		if q.answer == nil {
			continue
		}
		a := equal[string(q.answer)]
		if a == nil {
			a = &sharedAnswer{value: q.answer}
			equal[string(q.answer)] = a
			v.due = append(v.due, a)
		}
		a.ranks = append(a.ranks, q.Rank)
	}
	v.ready = v.ready[:0]
}

// frame is what an asker gets.
func (a *sharedAnswer) frame() []byte {
	m := message{Type: typeAnswer, Value: a.value}
	for i, r := range a.ranks {
		if i == 0 || a.ranks[i-1] != r-1 {
			m.Spans = append(m.Spans, r, r)
		}
		m.Spans[len(m.Spans)-1] = r
	}
	frame, err := encode(m)
	if err != nil { // too many ranks for one frame, with gaps between them
		n := len(a.ranks) / 2
		return append((&sharedAnswer{a.value, a.ranks[:n]}).frame(), (&sharedAnswer{a.value, a.ranks[n:]}).frame()...)
	}
	return frame
}

// passOn handles p's answer. False if p breaks the rules.
func (s *Server) passOn(p *peer, value []byte) bool {
	if !p.asked || len(value) > MaxValue {
		return false
	}
	if value == nil {
		value = []byte{}
	}
	p.asked = false
	p.answer, p.answered = value, time.Now()
	for _, q := range p.gen.members {
		if v := q.survey; v != nil && v.drop(p) {
			v.ready = append(v.ready, p)
			s.gather(q)
		}
	}
	return true
}

// unask forgets p, which will not answer any more.
func (s *Server) unask(p *peer) {
	p.relay = relay{}
	for _, q := range p.gen.members {
		if v := q.survey; v != nil && v.drop(p) {
			s.gather(q)
		}
	}
}

// drop removes p from the awaited members, and reports whether it was one.
func (v *survey) drop(p *peer) bool {
	_, awaited := v.awaiting[p]
	delete(v.awaiting, p)
	return awaited
}

// answers takes some of the due answers of p's survey. It returns the others once these have been written.
func (p *peer) answers() (frames net.Buffers) {
	v := p.survey
	if v == nil {
		return nil
	}
	for bytes := 0; len(v.due) > 0; v.due = v.due[1:] {
		if bytes > batchBytes {
			p.rouse()
			return frames
		}
		f := v.due[0].frame()
		frames = append(frames, f)
		bytes += len(f)
	}
	if len(v.awaiting) == 0 && len(v.ready) == 0 {
		end, err := encode(message{Type: typeAnswered, Use: v.use})
		if err != nil {
			panic(err) // a number always fits
		}
		frames = append(frames, end)
		p.survey = nil
	}
	return frames
}
