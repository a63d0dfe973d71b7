package rendezvous

import (
	"net"
	"time"
)

// relay is the server's state of one peer, for questions among the members of a generation. The server asks a member
// one question at a time, however many ranks ask: its next answer goes to all of them. Each member keeps only its last
// answer, and an asker gets answers as fast as it reads them. So memory stays small, with many askers and with slow
// ones. Guarded by Server.mu.
type relay struct {
	asked    bool      // the server waits for the peer's answer
	answer   []byte    // the last answer, as the frame that askers get; nil if there is none
	answered time.Time // when answer came
	asks     uint64    // the highest number of the peer's own Asks
	survey   *survey   // the peer's own open Ask; nil if it has none
}

// survey is one peer's Ask that is not complete.
type survey struct {
	use      uint64
	awaiting map[*peer]struct{} // members that have not answered
	ready    []*peer            // members that have answered; the asker has not got their answers
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
}

// passOn handles p's answer. False if p breaks the rules.
func (s *Server) passOn(p *peer, value []byte) bool {
	if !p.asked || len(value) > MaxValue {
		return false
	}
	frame, err := encode(message{Type: typeAnswer, First: p.Rank, Value: value})
	if err != nil {
		panic(err) // MaxValue is small enough to fit
	}
	p.asked = false
	p.answer, p.answered = frame, time.Now()
	for _, q := range p.gen.members {
		if v := q.survey; v != nil && v.drop(p) {
			v.ready = append(v.ready, p)
			q.rouse()
		}
	}
	return true
}

// unask forgets p, which will not answer any more.
func (s *Server) unask(p *peer) {
	p.relay = relay{}
	for _, q := range p.gen.members {
		if v := q.survey; v != nil && v.drop(p) {
			q.rouse()
		}
	}
}

// drop removes p from the awaited members, and reports whether it was one.
func (v *survey) drop(p *peer) bool {
	_, awaited := v.awaiting[p]
	delete(v.awaiting, p)
	return awaited
}

// answers takes some of the ready frames of p's survey. It returns the others once these have been written.
func (p *peer) answers() (frames net.Buffers) {
	v := p.survey
	if v == nil {
		return nil
	}
	for bytes := 0; len(v.ready) > 0; v.ready = v.ready[1:] {
		if bytes > batchBytes {
			p.rouse()
			return frames
		}
		// A member that has gone since has no answer any more.
		if f := v.ready[0].answer; f != nil {
			frames = append(frames, f)
			bytes += len(f)
		}
	}
	if len(v.awaiting) == 0 {
		end, err := encode(message{Type: typeAnswered, Use: v.use})
		if err != nil {
			panic(err) // a number always fits
		}
		frames = append(frames, end)
		p.survey = nil
	}
	return frames
}
