package rendezvous

import (
	"math"
	"net"
	"slices"
	"time"
)

// Failure is a report of a rank, or the end of a process that failed.
type Failure struct {
	Rank  int // the rank that reports
	About int // the rank that has failed: mostly the same
	Text  string
	At    time.Time // when it happened, by this host's clock

	reported bool // a rank reported it; otherwise it is the end of a process
}

// wake is how long after a failure another one counts as its consequence.
const wake = 30 * time.Second

// note inserts a failure in the order in which failures happened. News can arrive in another order: for instance, a
// launcher that was stopped hears all of it at once.
func (s *Server) note(f Failure) {
	i := len(s.failures)
	for i > 0 && f.At.Before(s.failures[i-1].At) {
		i--
	}
	s.failures = slices.Insert(s.failures, i, f)
}

// First returns the recent report that came before other reports and before the end of any failed process. It is the
// cause of the later failures. Nil if there is none.
func (s *Server) First() *Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *Failure
	for i := range s.failures {
		if f := &s.failures[i]; first == nil || f.At.Sub(first.At) >= wake {
			first = f
		}
	}
	if first == nil || !first.reported || time.Since(first.At) >= wake {
		return nil
	}
	found := *first
	return &found
}

// Clock translates the times of another host's clock into this host's. Each message from the other host bounds how far
// the clocks differ. If the bounds allow equal clocks, they count as equal, as the clocks of most clusters are. The
// zero value is the clock of this host.
type Clock struct {
	least, most time.Duration // bounds on how far the other clock is behind this one
	heard       bool
}

// Hear notes a message that the other host sent at then by its clock, in Unix ns. By this host's clock, the message was
// sent after earliest, if that is known, and before now.
func (c *Clock) Hear(then int64, earliest, now time.Time) {
	if then == 0 {
		return
	}
	sent := time.Unix(0, then)
	if !c.heard {
		c.heard, c.least, c.most = true, math.MinInt64, math.MaxInt64
	}
	c.most = min(c.most, now.Sub(sent))
	switch {
	case !earliest.IsZero():
		c.least = max(c.least, earliest.Sub(sent))
	case c.least == math.MinInt64:
		c.least = c.most // the quickest message bounds best
	}
	c.least = min(c.least, c.most)
}

// behind is how far the other clock is behind.
func (c *Clock) behind() time.Duration { return min(max(0, c.least), c.most) }

// Here translates a time of the other clock. It returns now if then is 0, or lies in the future. The result keeps now's
// monotonic time, so that a clock which is set later does not change the order of failures.
func (c *Clock) Here(then int64, now time.Time) time.Time {
	if then == 0 {
		return now
	}
	return now.Add(min(0, time.Unix(0, then).Add(c.behind()).Sub(now)))
}

// sameHost reports whether both ends of a connection have the same address, and so the same clock.
func sameHost(conn net.Conn) bool {
	ours, ok := conn.LocalAddr().(*net.TCPAddr)
	theirs, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return !ok || !ok2 || ours.IP.Equal(theirs.IP)
}
