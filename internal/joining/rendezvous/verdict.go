package rendezvous

import (
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Verdict says why a generation's operations have ended, in the words of the rank that told the server first. All ranks
// use these words, so that a failure reads the same on all of them.
type Verdict struct {
	// Cause says what failed: rank, host, process, how.
	Cause string
	// View says which rank noticed it, when, and what that rank was doing.
	View string
	// Left: nothing failed, but a rank has left. The operations on which all ranks have agreed still run, and each rank
	// decides by itself when to give up the others.
	Left bool
}

// judge takes p's reason for the end of its operations. The first reason counts, and the server sends it to every
// member, also to those that no other rank can reach. If an operation fails after a rank has left, the server sends the
// same words again; that means: end at once.
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
		return // p has the verdict, or will have it in a moment
	}
	s.verdict = g.verdict
	if !s.verdict.Left && s.Judged != nil {
		s.Judged(g.number, *s.verdict)
	}
	for q := range s.peers {
		if q.gen == g {
			s.send(q, message{Type: typeVerdict, Text: g.verdict.Cause, View: g.verdict.View, Left: g.verdict.Left})
		}
	}
}

// blame counts the end of a process with code 0 as a failure, once p says that operations failed because of it. Without
// that it is no failure: a rank may end without leaving while no rank has anything to do.
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

// Unfinished is appended to the description of an end that made other ranks fail.
const Unfinished = " while other ranks had operations to do"

// Verdict returns the verdict of the last generation that failed; nil if none has.
func (s *Server) Verdict() *Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict
}

// Agree sends this rank's account of a failure, and returns the account that counts on all ranks. It blocks until the
// server has answered, at most limit. After limit, or if the server cannot be reached, it returns this rank's own
// account. Further calls return the same.
func (s *Session) Agree(own Verdict, limit time.Duration) Verdict {
	agreed := s.Agreed()
	if agreed == nil || agreed.Left && !own.Left {
		// The write may block behind another one if the server does not read.
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

// OnVerdict calls f once, on a goroutine of its own, when the server says that this generation's operations end at
// once. It does not call f if the session ends before.
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

// Agreed returns the server's verdict; nil before there is one.
func (s *Session) Agreed() *Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict
}

// hearVerdict handles a verdict of the server; false for other frames. The caller holds mu.
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
