package rendezvous

import (
	"net"
	"slices"
	"time"
)

// Failure is a report of a rank, or the end of a process that failed.
type Failure struct {
	Rank  int // who reports
	About int // who has failed: mostly the same
	Text  string
	At    time.Time // when it happened, by this host's clock

	reported bool // by a rank: it is not the end of a process
}

// wake is how long what fails is taken for a consequence of what failed before it.
const wake = 30 * time.Second

// note keeps a failure in the order in which failures happened. News can come in another
// order: all at once, for instance, to a launcher that was stopped for a while.
func (s *Server) note(f Failure) {
	i := len(s.failures)
	for i > 0 && f.At.Before(s.failures[i-1].At) {
		i--
	}
	s.failures = slices.Insert(s.failures, i, f)
}

// First is the report, not long ago, that came before other reports and before any
// process had failed: the cause of what has failed after it. Nil if there is none.
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

// Clock translates the times of another host's clock into this one's. The zero value is
// the clock of this host. Clocks of hosts differ, and a message needs some time; the
// quickest message that was heard tells the difference best.
type Clock struct {
	behind time.Duration // add it to the other host's time
	heard  bool
}

// Hear takes note of a message that was sent at then by the other clock, as Unix time in
// ns, and came at now.
func (c *Clock) Hear(then int64, now time.Time) {
	if then == 0 {
		return
	}
	if behind := now.Sub(time.Unix(0, then)); !c.heard || behind < c.behind {
		c.behind, c.heard = behind, true
	}
}

// Here is a time of the other clock's by this one: now where the other has told none, or
// one that has not come yet.
func (c *Clock) Here(then int64, now time.Time) time.Time {
	if then == 0 {
		return now
	}
	if c.heard {
		c.Hear(then, now)
	}
	if t := time.Unix(0, then).Add(c.behind); t.Before(now) {
		return t
	}
	return now
}

// sameHost tells that both ends of a connection have one address, and so one clock.
func sameHost(conn net.Conn) bool {
	ours, ok := conn.LocalAddr().(*net.TCPAddr)
	theirs, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return !ok || !ok2 || ours.IP.Equal(theirs.IP)
}
