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
	// usualTime is how long an answer of generation.usual holds.
	usualTime = time.Second
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
	pinged time.Time     // when it was pinged last
	looked time.Time     // when silent was last counted
	silent time.Duration // how long since the unanswered ping
	took   time.Duration // from the last ping that was answered to the answer
}

// alive notes that a frame has arrived from the peer.
func (p *liveness) alive(now time.Time) {
	if p.asked {
		p.took = now.Sub(p.pinged)
	}
	p.heard, p.asked, p.silent = now, false, 0
}

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
	p.asked, p.looked, p.pinged = true, now, now
	return true
}

// usual is how long the members of g usually take to answer a ping: half of them take less. It is a millisecond where
// they get a core when they need one, and seconds where many processes share a few cores. It is new about once a
// second.
func (g *generation) usual(now time.Time) time.Duration {
	if now.Sub(g.usualAt) < usualTime {
		return g.usually
	}
	all := make([]time.Duration, 0, len(g.members))
	for _, q := range g.members {
		all = append(all, q.pulse.took)
	}
	slices.Sort(all)
	g.usualAt, g.usually = now, 0
	if len(all) > 0 {
		g.usually = all[(len(all)-1)/2]
	}
	return g.usually
}

// beat pings the other members of p's generation, and tells p at once which of them have not answered earlier pings. It
// keeps no state for p, which has to ask again. Silence begins when a member has not answered for twice as long as
// usual, so on a busy machine a slow answer is not taken for a dead rank.
func (s *Server) beat(p *peer, now time.Time) {
	m := message{Type: typeBeats}
	grace := 2 * p.gen.usual(now)
	for r, q := range p.gen.members {
		if _, connected := s.peers[q]; !connected || q == p {
			continue
		}
		if q.pulse.look(now) {
			s.send(q, message{Type: typePing})
		}
		if silent := q.pulse.silent - grace; silent > 0 {
			m.Silent = append(m.Silent, Silence{r, silent})
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
