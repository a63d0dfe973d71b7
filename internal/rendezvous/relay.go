package rendezvous

import (
	"net"
	"time"
)

// relay is the server's state of one peer for questions among the members of a generation. The server asks a member
// one question at a time, however many ranks ask: its next answer goes to all of them. Each member keeps only its last
// answer, and an asker gets answers as fast as it reads them. So neither many nor slow askers use much memory. Guarded
// by Server.mu.
type relay struct {
	asked    bool      // its answer is awaited
	answer   []byte    // the last one, as the frame that askers get; nil if there is none
	answered time.Time // when answer came
	asks     uint64    // the highest number of its own asks
	survey   *survey   // its own ask, nil if it has none open
}

// survey is one peer's ask that is not complete.
type survey struct {
	use      uint64
	awaiting map[*peer]struct{} // have not answered
	ready    []*peer            // have, which the asker has not been told
}

// ask begins a survey for p. It replaces an earlier one.
func (s *Server) ask(p *peer, use uint64) {
	if use <= p.asks {
		return // overtaken on the way by a later one, whose answers serve both
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
		panic(err) // MaxValue is chosen so that it fits
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

// drop ends the wait for p, and reports whether there was one.
func (v *survey) drop(p *peer) bool {
	_, awaited := v.awaiting[p]
	delete(v.awaiting, p)
	return awaited
}

// answers removes some of the ready frames of p's survey. The rest follows after they have been written.
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
		// Who has gone since has no answer any more.
		if f := v.ready[0].answer; f != nil {
			frames = append(frames, f)
			bytes += len(f)
		}
	}
	if len(v.awaiting) == 0 {
		end, err := encode(message{Type: typeAnswered, Use: v.use})
		if err != nil {
			panic(err) // a number fits
		}
		frames = append(frames, end)
		p.survey = nil
	}
	return frames
}
