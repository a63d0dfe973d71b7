package rendezvous

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/pulse"
)

const (
	// pingPause is how long a rank that has just been heard of is not asked again.
	pingPause = time.Second / 2
	// maxTick bounds how much silence may pass between two looks at it: longer than
	// that nobody has looked, so that nobody knows.
	maxTick = 10 * time.Second
	// maxSilent is how many silent ranks one answer lists.
	maxSilent = 64
)

// Silence says for how long a rank has not answered. Its session answers by
// itself, so it is not a rank that computes, but one whose process is stopped or
// whose host cannot be reached.
type Silence struct {
	Rank int
	For  time.Duration
}

// liveness is what the server knows of a peer's life. Guarded by Server.mu.
type liveness struct {
	heard  time.Time     // when the last frame came
	asked  bool          // a ping has not been answered
	looked time.Time     // when silent was counted last
	silent time.Duration // since the ping
}

// alive notes that something has come.
func (p *liveness) alive(now time.Time) { p.heard, p.asked, p.silent = now, false, 0 }

// look counts the silence, and reports whether a ping is due.
func (p *liveness) look(now time.Time) (ping bool) {
	if p.asked {
		p.silent += min(now.Sub(p.looked), maxTick)
		p.looked = now
		return false
	}
	if now.Sub(p.heard) < pingPause {
		return false
	}
	p.asked, p.looked = true, now
	return true
}

// beat pings the other members of p's generation, and tells p at once who has not
// answered earlier pings. Nothing is kept for p: who wants to know asks again.
func (s *Server) beat(p *peer, now time.Time) {
	m := message{Type: typeBeats}
	for r, q := range p.gen.members {
		if _, connected := s.peers[q]; !connected || q == p {
			continue
		}
		if q.pulse.look(now) {
			s.send(q, message{Type: typePing})
		}
		if q.pulse.silent > 0 {
			m.Silent = append(m.Silent, Silence{r, q.pulse.silent})
		}
	}
	slices.SortFunc(m.Silent, func(a, b Silence) int { return int(b.For - a.For) })
	m.Silent = m.Silent[:min(len(m.Silent), maxSilent)]
	s.send(p, m)
}

// Beat asks the launcher which ranks are silent, the longest first. The answer
// comes at once, and is about the pings of earlier Beats, of whichever rank: who
// waits calls it every few seconds. One Beat at a time. The error, where the
// launcher has not answered before ctx ended, wraps that of ctx.
func (s *Session) Beat(ctx context.Context) ([]Silence, error) {
	select {
	case <-s.beats: // too late for an earlier one
	default:
	}
	if err := s.write(message{Type: typeBeat}); err != nil {
		return nil, fmt.Errorf("rendezvous: is everybody alive: %w", err)
	}
	select {
	case silent := <-s.beats:
		return silent, nil
	case <-s.ended:
		return nil, fmt.Errorf("rendezvous: is everybody alive: %w", s.cause())
	case <-ctx.Done():
		return nil, fmt.Errorf("rendezvous: the launcher does not say which ranks are alive: %w", ctx.Err())
	}
}

// hearBeats takes the answer to a Beat; false for other frames.
func (s *Session) hearBeats(m message) bool {
	if m.Type != typeBeats {
		return false
	}
	silent := slices.DeleteFunc(m.Silent, func(q Silence) bool { return q.Rank < 0 || q.Rank >= s.o.Size })
	select {
	case s.beats <- silent:
	default:
	}
	return true
}

// Mute is for how long the launcher's kernel has acknowledged nothing, not even
// Beats. Where it is short a launcher that does not answer is stopped, not gone.
func (s *Session) Mute() (silent time.Duration, known bool) {
	conn := s.conn
	if w, wraps := conn.(interface{ NetConn() net.Conn }); wraps {
		conn = w.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	raw.Control(func(fd uintptr) { silent, err = pulse.Silence(int(fd)) })
	return silent, err == nil
}
