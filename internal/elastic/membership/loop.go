package membership

import (
	"fmt"
	"slices"
	"time"
)

const (
	// provenTime is how long a worker must live, after its first place or else its start, so that its failure does not
	// count as a crash.
	provenTime = 30 * time.Second
	// freeCrashes is how many crashes in a row cause no pause.
	freeCrashes = 2
	// longestPause is the longest pause of a host after a crash.
	longestPause = 30 * time.Second
)

// loop finds crash loops on a host. In a crash loop, workers fail soon after their start, each starts after the failure
// of the one before, and nothing is committed.
type loop struct {
	crashes int           // in a row
	last    time.Duration // when the last crash was
	joined  bool          // the worker of the last crash was a member of the epoch
	paused  time.Duration // until when no worker starts on the host; 0: workers start
	told    bool          // the user knows of the pause
}

// crashed counts a worker's failure. From the third crash on it pauses the host: for 1 s, then twice as long each
// time.
func (s *State) crashed(w *worker, member bool) {
	h := w.host
	if h.crashes > 0 && w.started < h.last {
		return // it already ran when the last worker failed: one failure took several workers
	}
	if s.now-w.since >= provenTime {
		h.loop = loop{}
		return
	}
	h.crashes++
	h.last, h.joined = s.now, member
	again := h.crashes - freeCrashes - 1
	if again < 0 {
		return
	}
	h.paused, h.told = s.now+min(time.Second<<min(again, 10), longestPause), !s.spare(h)
}

// pauses describes the hosts' pauses of which the user has not been told.
func (s *State) pauses() (list []string) {
	for _, h := range s.hosts {
		if h.paused == 0 || h.told {
			continue
		}
		h.told = true
		list = append(list, fmt.Sprintf("%d workers in a row have failed on host %s soon after their start: no other "+
			"is started there for %v", h.crashes, h.name, (h.paused-s.now).Round(time.Second/10)))
	}
	return list
}

// tellPauses tells the user about new pauses, unless a report is coming that does so: survivors may yet report a
// commit.
func (s *State) tellPauses() {
	if s.stopped || s.lost && slices.ContainsFunc(s.workers, func(w *worker) bool { return w.member }) {
		return
	}
	for _, text := range s.pauses() {
		s.tell("%s", text)
	}
}

// wake ends the pauses whose time is over.
func (l *loop) wake(now time.Duration) {
	if l.paused <= now {
		l.paused = 0
	}
}

// advanced ends the crash loops of hosts whose newest workers were in the last epoch, if that epoch has committed
// anything. came are the workers that wait for a place.
func (s *State) advanced(came []*worker) {
	commits := slices.ContainsFunc(came, func(w *worker) bool { return w.Commit > s.newest })
	for _, h := range s.hosts {
		part := h.joined || slices.ContainsFunc(came,
			func(w *worker) bool { return w.host == h && w.member && w.started >= h.last })
		h.joined = false
		if commits && part {
			h.loop = loop{}
		}
	}
}

// spare reports whether the host has a free slot, now or after its cooldown.
func (s *State) spare(h *host) bool {
	for slot := range h.offered {
		if until, barred := h.barred[slot]; !s.taken(h, slot) && (!barred || until != never) {
			return true
		}
	}
	return false
}
