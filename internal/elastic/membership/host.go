package membership

import (
	"fmt"
	"slices"
	"time"
)

// Host is a name with the number of slots that it offers.
type Host struct {
	Name  string
	Slots int
}

// host is the state of one host. The State never forgets a host, because its failures count.
type host struct {
	name    string
	index   int // in State.hosts
	offered int // slots; 0 while discovery does not offer the host
	// barred are the slots lost to failed workers, with the time at which each can be used again.
	barred map[int]time.Duration
	// banned is the time at which the whole host can be used again; 0: it is not banned.
	banned   time.Duration
	failures int
	// Until cooling, another failure costs the whole host.
	cooling time.Duration
	loop
}

func (s *State) host(name string) *host { return s.named[name] }

// offer takes over the discovered hosts. Known hosts keep their order; new ones come last.
func (s *State) offer(offered []Host) {
	for _, h := range s.hosts {
		h.offered = 0
	}
	for _, o := range offered {
		h := s.host(o.Name)
		if h == nil {
			h = &host{name: o.Name, index: len(s.hosts), barred: map[int]time.Duration{}}
			s.hosts = append(s.hosts, h)
			s.named[o.Name] = h
		}
		h.offered = o.Slots
	}
}

// usable reports whether a worker may be on the slot.
func (h *host) usable(slot int) bool {
	_, barred := h.barred[slot]
	return slot < h.offered && !barred && h.banned == 0
}

// thaw frees the slots and hosts whose cooldown is over.
func (s *State) thaw() {
	for _, h := range s.hosts {
		if h.banned != 0 && h.banned <= s.now {
			h.banned = 0
			if h.offered > 0 { // otherwise discovery no longer offers it
				s.tell("host %s may be used again", h.name)
			}
		}
		for slot, until := range h.barred {
			if until <= s.now {
				delete(h.barred, slot)
			}
		}
		h.wake(s.now)
	}
}

// thawing is the next time at which a slot or a host can be used again; never if there is none.
func (s *State) thawing() time.Duration {
	next := never
	for _, h := range s.hosts {
		if h.banned != 0 {
			next = min(next, h.banned)
		}
		for _, until := range h.barred {
			next = min(next, until)
		}
	}
	return next
}

// fail takes a worker's slot, or its host, out of use after the worker failed. member: the worker was a member of the
// epoch, and the other members form the next one.
func (s *State) fail(w *worker, member bool) {
	s.failures++
	s.died(w)
	h := w.host
	if h.banned != 0 {
		return // the whole host is out of use already
	}
	if s.c.WholeHosts {
		s.blacklist(h, "a worker of it has failed")
		return
	}
	if h.cooling > s.now && s.elsewhere(h) {
		s.blacklist(h, "a worker of it has failed again")
		return
	}
	until := s.cooled(h)
	h.barred[w.slot], h.cooling = until, until
	switch {
	case w.slot >= h.offered:
	case member:
		s.costs = append(s.costs, w)
	default:
		s.tell("%s", s.cost([]*worker{w}))
	}
	s.crashed(w, member)
}

// cost describes the slots lost to failures.
func (s *State) cost(failed []*worker) string {
	until := time.Duration(0)
	for _, w := range failed {
		until = max(until, w.host.barred[w.slot])
	}
	w := failed[0]
	if len(failed) == 1 {
		return fmt.Sprintf("worker %d's slot on host %s is %s", w.id, w.host.name, s.left(until))
	}
	return fmt.Sprintf("the slots of %s are %s", named(failed), s.left(until))
}

// left says how long a slot or host stays out of use if it can be used again at until. The first time, it also says how
// the user can change that.
func (s *State) left(until time.Duration) string {
	switch {
	case until == never && s.advised:
		return "not used again"
	case until == never:
		s.advised = true
		return fmt.Sprintf("not used again (%s would)", s.c.Terms.Cooldown)
	}
	return fmt.Sprintf("not used for %v", (until - s.now).Round(time.Second/10))
}

// blacklist bans a host and ends the workers on it.
func (s *State) blacklist(h *host, why string) {
	if h.banned != 0 {
		return
	}
	h.banned = s.cooled(h)
	h.cooling = h.banned
	if h.offered > 0 { // otherwise discovery no longer offers it
		s.tell("host %s is %s: %s", h.name, s.left(h.banned), why)
	}
	for _, w := range s.on(h) {
		if w.phase != ending {
			if w.member {
				s.lost = true
			}
			s.died(w)
			s.give(w, "its host is not used any more")
		}
	}
}

// cooled counts a failure of h, and returns the time at which the slot or host can be used again, by Horovod's
// formula.
func (s *State) cooled(h *host) time.Duration {
	h.failures++
	low, high := s.c.Cooldown.Min, s.c.Cooldown.Max
	if high == 0 {
		return never
	}
	delay := high
	if h.failures < 30 { // otherwise the shift overflows; the result is above any high anyway
		delay = low<<h.failures + time.Duration(s.c.Random()*float64(low))
	}
	return s.now + min(max(delay, low), high)
}

// elsewhere reports whether the job can go on without h: a worker on another host holds the state. The last host with
// the state is not blacklisted for its workers' failures.
func (s *State) elsewhere(h *host) bool {
	return slices.ContainsFunc(s.workers, func(w *worker) bool {
		return w.host != h && w.phase != ending && (w.veteran || s.epoch == 0)
	})
}

// offered counts all slots, usable or not.
func (s *State) offered() (n int) {
	for _, h := range s.hosts {
		n += h.offered
	}
	return n
}

// slots counts the usable slots.
func (s *State) slots() (n int) {
	for _, h := range s.hosts {
		for slot := range h.offered {
			if h.usable(slot) {
				n++
			}
		}
	}
	return n
}
