package membership

import (
	"fmt"
	"slices"
	"time"
)

// pingInterval is the time between two pings of a member while others wait for it.
const pingInterval = time.Second

// holdOut reports whether the next epoch has to wait for workers: the members that have not left the last one. While
// another worker waits:
//   - These members get pings, and a member that does not answer for Patience is given up.
//   - A member that answers may take its time until its epoch has ended. From then on it has Timeout to come.
func (s *State) holdOut() bool {
	came := s.in(ready)
	holdouts := s.in(running)
	if s.epoch == 0 {
		holdouts = s.in(starting)
	}
	if len(holdouts) == 0 || len(came) == 0 {
		s.holding, s.overdue = never, never
		return len(holdouts) > 0
	}
	s.holding = min(s.holding, s.now)
	if s.epoch == 0 || slices.ContainsFunc(came, func(w *worker) bool { return w.member }) {
		if s.overdue == never {
			s.overdue = s.now + s.c.Timeout
		}
	} else {
		s.overdue = never
	}
	late := s.now >= s.overdue
	if s.epoch == 0 {
		return !late // before the first epoch, a slow starter delays the others at most until overdue
	}
	for _, w := range holdouts {
		silent := s.now - max(w.heard, s.holding)
		switch {
		case late:
			s.evict(w, fmt.Sprintf("the others have waited for it for %v", s.c.Timeout))
		case silent >= s.c.Patience:
			s.evict(w, fmt.Sprintf("it has not answered for %v: it is stopped, or cannot be reached", s.c.Patience))
		case s.now-max(w.pinged, s.holding) >= s.pingEvery():
			w.pinged = s.now
			s.act(Ping{w.id})
		}
	}
	if len(s.in(running)) > 0 {
		return true
	}
	s.holding, s.overdue = never, never
	return false
}

// pingEvery is the time between two pings, short enough for several pings within Patience.
func (s *State) pingEvery() time.Duration { return min(pingInterval, s.c.Patience/4) }

// maxFalls is how often in a row all workers may fail before the job ends although its state is on a disk. A few times
// in a row they may fail without a fault of the program: a volume is away, or machines go one after the other.
const maxFalls = 5

// abandoned reports whether the job cannot go on: the last worker has failed, or the last worker that holds the state,
// and the state is on no disk or has been taken from there maxFalls times without a new commit. It stops the job once
// all workers have ended, or at the last of the falls.
func (s *State) abandoned() bool {
	alive := func(w *worker) bool { return w.phase != ending && (w.veteran || s.epoch == 0) }
	if s.failures == 0 || slices.ContainsFunc(s.workers, alive) {
		return false
	}
	if s.epoch > 0 && s.c.Resumable && s.saved >= 0 {
		return s.fell()
	}
	if len(s.in(starting))+len(s.in(ready)) > 0 {
		s.stop("no worker is left that holds the state of the job")
	} else if len(s.workers) == 0 {
		s.stop("all workers have failed")
	}
	return true
}

// fell counts a fall: since the last one or the last commit on the disk as many workers have died as the last epoch
// had. Workers that fail before they have got a place are left to Timeout: they may be of a new host that is of no use,
// while others are on their way. At maxFalls it stops the job, and returns true.
func (s *State) fell() bool {
	if s.deaths < max(1, s.size) {
		return false
	}
	s.deaths = 0
	if s.falls++; s.falls < maxFalls {
		return false
	}
	s.stop(fmt.Sprintf("all workers have failed %d times in a row, and none has written a commit to the disk since "+
		"commit %d", s.falls, s.saved))
	return true
}

// short reports whether there are too few workers to form an epoch. After Timeout it stops the job.
func (s *State) short(came, need int) bool {
	if came >= need {
		s.waiting, s.replaced = never, false
		return false
	}
	if s.hopeless(need) {
		s.stop(s.lacking(need) + ": there will be no others")
		return true
	}
	if s.waiting == never {
		s.waiting = s.now
	}
	if !s.complained && s.slots() < need {
		s.complained = true
		s.tell("%s: waiting for others, at most %v", s.lacking(need), s.c.Timeout-(s.now-s.waiting))
	}
	if late := s.in(starting); s.now-s.waiting >= s.c.Timeout && len(late) > 0 && !s.replaced {
		// Other workers may start in their places, once.
		for _, w := range late {
			s.evict(w, fmt.Sprintf("it has not come to hvd.init() for %v", s.c.Timeout))
		}
		s.waiting, s.replaced = s.now, true
		s.fill()
	}
	if s.now-s.waiting >= s.c.Timeout {
		lacking := s.lacking(need)
		if s.slots() >= need {
			lacking = fmt.Sprintf("%d of the %d workers that the job needs have come to hvd.init()", came, need)
		}
		s.stop(fmt.Sprintf("%s after %v: %s, and how they failed (%s, %s)", lacking, s.c.Timeout, s.c.Terms.Slots,
			s.c.Terms.Min, s.c.Terms.Timeout))
	}
	return true
}

// lacking says how many slots there are, and how many more there would be without failures.
func (s *State) lacking(need int) string {
	text := fmt.Sprintf("%d of the %d slots that the job needs are there", s.slots(), need)
	if need == 1 {
		text = "the one slot that the job needs is not there"
	}
	out, next := s.offered()-s.slots(), s.thawing()
	switch {
	case out == 0:
		return text
	case next == never:
		return fmt.Sprintf("%s (failures have cost %d more; %s would use them again)", text, out, s.c.Terms.Cooldown)
	}
	return fmt.Sprintf("%s (failures have cost %d more; the next is used again in %v)", text, out,
		(next - s.now).Round(time.Second/10))
}

// hopeless reports whether waiting for more slots is useless. It is so in two cases:
//   - The hosts never change.
//   - No worker holds the state any more, and discovery offers enough hosts or none at all, not counting those lost to
//     failures.
func (s *State) hopeless(need int) bool {
	usable, offered := s.slots(), s.offered()
	if usable >= need || s.thawing() != never {
		return false
	}
	if s.c.Fixed {
		return true
	}
	held := slices.ContainsFunc(s.workers, func(w *worker) bool { return w.veteran && w.phase != ending })
	return !held && usable < offered && (usable == 0 || offered >= need)
}

// Next returns the time at which Tick is needed if nothing else happens before; false if Tick is not needed. The time
// lies after the last event, because everything due has been done.
func (s *State) Next() (time.Duration, bool) {
	if s.stopped {
		return 0, false
	}
	next := never
	for _, at := range s.dates() {
		if at > s.now {
			next = min(next, at)
		}
	}
	return next, next != never
}

// dates are the times at which something becomes, or was, due.
func (s *State) dates() []time.Duration {
	list := []time.Duration{s.thawing(), s.gather}
	for _, h := range s.hosts {
		list = append(list, h.paused)
	}
	if s.waiting != never {
		list = append(list, s.waiting+s.c.Timeout)
	}
	if s.holding != never {
		list = append(list, s.overdue)
		for _, w := range s.in(running) {
			list = append(list, max(w.heard, s.holding)+s.c.Patience, max(w.pinged, s.holding)+s.pingEvery())
		}
	}
	return list
}
