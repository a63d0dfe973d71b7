package rendezvous

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/pulse"
)

const (
	// pingPause is how long the server does not ping a rank that it has just heard from.
	pingPause = time.Second / 2
	// maxTick is the most silence that one look can add. A longer gap does not count as silence, because nobody looked
	// in between.
	maxTick = 10 * time.Second
	// maxSilent is the most silent ranks in one answer.
	maxSilent = 64
)

// Silence is how long a rank has not answered. A session answers by itself, while its rank computes. So a silent rank
// is stopped, or its host cannot be reached.
type Silence struct {
	Rank int
	For  time.Duration
}

// liveness is the server's state of a peer's life. Guarded by Server.mu.
type liveness struct {
	heard  time.Time     // when the last frame came
	asked  bool          // the peer has not answered a ping
	looked time.Time     // when silent was last counted
	silent time.Duration // how long since the unanswered ping
}

// alive notes that a frame has arrived from the peer.
func (p *liveness) alive(now time.Time) { p.heard, p.asked, p.silent = now, false, 0 }

// look adds to the silence, and reports whether a ping is due.
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

// beat pings the other members of p's generation, and tells p at once which of them have not answered earlier pings. It
// keeps no state for p, which has to ask again.
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

// Beat asks the launcher which ranks are silent, the longest first. The answer comes at once, and is about the pings of
// earlier Beats, of any rank. So call it every few seconds while you wait, one call at a time. If the launcher does not
// answer before ctx ends, the error wraps ctx's error.
func (s *Session) Beat(ctx context.Context) ([]Silence, error) {
	select {
	case <-s.beats: // an answer that came too late for an earlier Beat
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

// hearBeats handles the answer to a Beat; false for other frames.
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

// Mute is how long the launcher's kernel has acknowledged nothing, not even Beats. If that is short, a launcher that
// does not answer is stopped, not gone.
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
