package rendezvous

import (
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Figures are a rank's report of its work, for which the launcher asks; package feed encodes them. The server asks a
// rank again only after the rank has answered. So frames do not pile up, even if a rank or the launcher is stopped. A
// rank may tell unasked once: at its end.

const (
	// maxFigures is the most bytes of one answer.
	maxFigures = 16 << 10
	// figuresRate is how many bytes per second a rank may send on average.
	figuresRate = 1000
)

// telling is the server's state of a peer's answers. Guarded by Server.mu.
type telling struct {
	asked bool      // the peer has not answered the last question
	at    time.Time // when the server last asked the peer
	next  time.Time // the server does not ask the peer before then
	last  bool      // the peer has told unasked: see Session.TellLast
}

// AskFigures asks each connected rank for its figures, unless the rank still owes an answer or has sent much lately.
// The answers go to Server.Figures.
func (s *Server) AskFigures() {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		if !p.telling.asked && !now.Before(p.telling.next) {
			p.telling.asked, p.telling.at = true, now
			s.send(p, message{Type: typeTell, Stack: slices.Contains(s.inspected, p.Rank)})
		}
	}
}

// Inspect says which ranks AskFigures asks where their program is, too, from now on. Others have waited for them.
func (s *Server) Inspect(ranks []int) {
	s.mu.Lock()
	s.inspected = ranks
	s.mu.Unlock()
}

// told hands on an answer, or what p tells at its end. False if p tells more often than it may, or too much.
func (s *Server) told(p *peer, m message) bool {
	if s.Figures == nil || len(m.Value) > maxFigures {
		return false
	}
	s.mu.Lock()
	may := p.telling.asked || !p.telling.last
	if !p.telling.asked {
		p.telling.last = true
	}
	p.telling.asked = false
	p.telling.next = p.telling.at.Add(time.Duration(len(m.Value)) * time.Second / figuresRate)
	p.pulse.alive(time.Now())
	generation := p.gen.number
	s.mu.Unlock()
	if may {
		s.Figures(p.Rank, generation, p.Host, m.Value)
	}
	return may
}

// OnTell sets the function that returns this rank's figures when the launcher asks for them, with the stack of the
// program's thread if it asks for that. f may be called on any goroutine, once at a time, and should take no longer
// than some milliseconds.
func (s *Session) OnTell(f func(stack bool) []byte) { s.onTell.Store(&f) }

// TellLast tells the launcher figures for which it has not asked. Call it once, before Close. It may block for as long
// as Close may.
func (s *Session) TellLast(figures []byte) {
	s.write(message{Type: typeFigures, Value: figures[:min(len(figures), maxFigures)]})
}

// tell answers the launcher, on a goroutine of its own so that a slow write holds up no news.
func (s *Session) tell(stack bool) {
	guard.Go("the figures for the launcher", s.end, func() {
		var p []byte
		if f := s.onTell.Load(); f != nil {
			p = (*f)(stack)
		}
		s.write(message{Type: typeFigures, Value: p[:min(len(p), maxFigures)]})
	})
}
