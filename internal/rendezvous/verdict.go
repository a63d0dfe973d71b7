package rendezvous

import (
	"time"

	"github.com/gorovod/gorovod/internal/guard"
)

// Verdict is why a generation's operations have come to their end, in the words of the
// rank that was the first to tell the server. All ranks use them, so that a failure
// reads the same everywhere, whoever has seen it, and however often.
type Verdict struct {
	// Cause says what has failed: rank, host, process, how.
	Cause string
	// View is when that was noticed, by which rank, and what it was doing.
	View string
	// Left: nothing has failed, but a rank has left. The operations that all have agreed on come to
	// their ends, and each rank learns by itself when to give up the others.
	Left bool
}

// judge takes what p says why its operations end. The first to say so is believed, and
// every member is told: also those that no other rank could reach. Where something fails
// after a rank has left, they are told again, in the same words, that they are to end at once.
func (s *Server) judge(p *peer, m message) {
	g := p.gen
	switch {
	case m.Text == "":
		return
	case g.verdict == nil:
		g.verdict = &Verdict{clip(m.Text, maxText), clip(m.View, maxText), m.Left}
	case g.verdict.Left && !m.Left:
		g.verdict = &Verdict{g.verdict.Cause, g.verdict.View, false}
	default:
		return // p has been told, or will be in a moment
	}
	s.verdict = g.verdict
	for q := range s.peers {
		if q.gen == g {
			s.send(q, message{Type: typeVerdict, Text: g.verdict.Cause, View: g.verdict.View, Left: g.verdict.Left})
		}
	}
}

// blame notes the end of a process with code 0 as a failure, once p says that operations failed because of it. The
// end alone is none: a rank may end without leaving when nobody has anything to do any more.
func (s *Server) blame(p *peer, m message) {
	if p.gen.verdict == nil {
		return
	}
	for _, d := range s.deaths {
		if !d.Failed() && d.String() == p.gen.verdict.Cause {
			s.note(Failure{Rank: p.Rank, About: d.Rank, Text: d.String() + Unfinished,
				At: p.clock.Here(m.At, time.Now()), reported: true})
			return
		}
	}
}

// Unfinished follows how a rank has ended or left where that made others fail.
const Unfinished = " while other ranks had operations to do"

// Verdict is that of the generation that was the last to fail, nil if none has.
func (s *Server) Verdict() *Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict
}

// Agree offers this rank's account of a failure, and returns the one that counts on all
// ranks. It blocks until the server has answered, at most limit: then, and where the
// server cannot be reached, this rank's own account is returned. Calling it again
// gives the same.
func (s *Session) Agree(own Verdict, limit time.Duration) Verdict {
	agreed := s.Agreed()
	if agreed == nil || agreed.Left && !own.Left {
		// The write may block behind another one, if the server does not read.
		guard.Go("the account of a failure", s.end, func() {
			s.write(message{Type: typeCause, Text: clip(own.Cause, maxText), View: clip(own.View, maxText),
				Left: own.Left})
		})
	}
	if agreed != nil {
		return *agreed
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.judged:
	case <-s.ended:
	case <-timer.C:
	}
	if v := s.Agreed(); v != nil {
		return *v
	}
	return own
}

// OnVerdict calls f once, on a goroutine of its own, when the server tells that this
// generation's operations end at once; never if it does not before the session ends.
func (s *Session) OnVerdict(f func(Verdict)) {
	guard.Go("the news of a failure", s.end, func() {
		select {
		case <-s.failed:
		case <-s.ended:
		}
		if v := s.Agreed(); v != nil && !v.Left {
			f(*v)
		}
	})
}

// Agreed is what the server has told, nil while it has not.
func (s *Session) Agreed() *Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict
}

// hearVerdict takes the server's word; false for other frames. The caller holds mu.
func (s *Session) hearVerdict(m message) bool {
	if m.Type != typeVerdict {
		return false
	}
	before := s.verdict
	if before != nil && !before.Left {
		return true
	}
	s.verdict = &Verdict{m.Text, m.View, m.Left}
	if before == nil {
		close(s.judged)
	}
	if !m.Left {
		close(s.failed)
	}
	return true
}
