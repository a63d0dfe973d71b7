package membership

import (
	"slices"
	"time"
)

// Registration is what a worker says when it waits for a place.
type Registration struct {
	// Commit is the number of the newest commit that it holds; below 0: none.
	Commit int64
	// Intact says that it has the same state as all members of its last epoch.
	Intact bool
	// Sets are the process sets of its last epoch.
	Sets [][]int
	// Trouble says why it could not join its last epoch; empty if it could.
	Trouble string
}

type phase int

const (
	starting phase = iota // its process was started
	ready                 // it waits for a place
	running               // it has a place in the epoch
	ending                // its process is to end, and what it does means nothing
)

// worker is one process.
type worker struct {
	Registration
	id      int
	host    *host
	slot    int
	phase   phase
	member  bool // of the last epoch
	veteran bool // of any epoch: it has the state
	heard   time.Duration
	pinged  time.Duration
}

func (s *State) worker(id int) *worker {
	i := slices.IndexFunc(s.workers, func(w *worker) bool { return w.id == id })
	if i < 0 {
		return nil
	}
	return s.workers[i]
}

// on lists the workers of a host.
func (s *State) on(h *host) (list []*worker) {
	for _, w := range s.workers {
		if w.host == h {
			list = append(list, w)
		}
	}
	return list
}

// in lists the workers that are in a phase, the oldest first.
func (s *State) in(p phase) (list []*worker) {
	for _, w := range s.workers {
		if w.phase == p {
			list = append(list, w)
		}
	}
	return list
}

// leaving says that a worker's slot has been taken away.
func (s *State) leaving(w *worker) bool {
	return w.phase != ending && w.slot >= w.host.offered
}

// staying counts the workers that have a future in the job.
func (s *State) staying() (n int) {
	for _, w := range s.workers {
		if w.phase != ending && !s.leaving(w) {
			n++
		}
	}
	return n
}

// fill starts workers on free slots, up to Max. A job that has not begun needs NP slots
// for it.
func (s *State) fill() {
	if s.started == 0 && s.slots() < s.c.NP {
		return
	}
	room := 1 << 30
	if s.c.Max > 0 {
		room = s.c.Max
	}
	room -= s.staying()
	for _, h := range s.hosts {
		for slot := 0; slot < h.offered && room > 0; slot++ {
			taken := slices.ContainsFunc(s.workers, func(w *worker) bool { return w.host == h && w.slot == slot })
			if taken || !h.usable(slot) {
				continue
			}
			s.workers = append(s.workers, &worker{id: s.started, host: h, slot: slot})
			s.act(Start{Worker: s.started, Host: h.name, Slot: slot})
			s.started++
			room--
		}
	}
}
