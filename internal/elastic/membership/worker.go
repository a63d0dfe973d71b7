package membership

import (
	"cmp"
	"slices"
	"time"
)

// Registration is what a worker reports when it waits for a place.
type Registration struct {
	// Commit is the number of the newest commit that it holds; below 0: none.
	Commit int64
	// Intact: the worker has the same state as all members of its last epoch.
	Intact bool
	// Sets are the process sets of the worker's last epoch.
	Sets [][]int
	// Trouble says why the worker could not join its last epoch; empty if it could.
	Trouble string
}

type phase int

const (
	starting phase = iota // its process was started
	ready                 // it waits for a place
	running               // it has a place in the epoch
	ending                // its process is to end; nothing that it does counts
)

// worker is one process.
type worker struct {
	Registration
	id      int
	host    *host
	slot    int
	phase   phase
	member  bool // it is a member of the last epoch
	veteran bool // it was a member of some epoch, so it has the state
	started time.Duration
	since   time.Duration // when it got its first place; its start if it has had none
	heard   time.Duration
	pinged  time.Duration
}

func (s *State) worker(id int) *worker {
	i, found := slices.BinarySearchFunc(s.workers, id, func(w *worker, id int) int { return cmp.Compare(w.id, id) })
	if !found {
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

// leaving reports whether a worker's slot has been taken away.
func (s *State) leaving(w *worker) bool {
	return w.phase != ending && w.slot >= w.host.offered
}

// staying counts the workers that stay in the job.
func (s *State) staying() int { return s.count(s.workers) }

// count counts those of the given workers that stay in the job.
func (s *State) count(workers []*worker) (n int) {
	for _, w := range workers {
		if w.phase != ending && !s.leaving(w) {
			n++
		}
	}
	return n
}

// fill starts workers on free slots, up to Max. Before the first epoch it needs NP slots.
func (s *State) fill() {
	if s.started == 0 && s.slots() < s.c.NP {
		return
	}
	room := 1 << 30
	if s.c.Max > 0 {
		room = s.c.Max
	}
	room -= s.staying()
	first := s.started
	taken := make(map[seat]bool, len(s.workers))
	for _, w := range s.workers {
		taken[seat{w.host, w.slot}] = true
	}
	for _, h := range s.hosts {
		if h.paused != 0 {
			continue
		}
		for slot := 0; slot < h.offered && room > 0; slot++ {
			if taken[seat{h, slot}] || !h.usable(slot) {
				continue
			}
			s.workers = append(s.workers, &worker{id: s.started, host: h, slot: slot, started: s.now, since: s.now})
			s.started++
			room--
		}
	}
	if s.started == first {
		return
	}
	places := slices.DeleteFunc(s.foreseen(), func(p Place) bool { return p.Worker < first })
	slices.SortFunc(places, func(a, b Place) int { return cmp.Compare(a.Worker, b.Worker) })
	for _, p := range places {
		s.act(Start{Worker: p.Worker, Host: p.Host, Slot: p.LocalRank, Place: p})
	}
}

// seat is a slot of a host.
type seat struct {
	host *host
	slot int
}

// taken reports whether a worker, which may be ending, is on the slot.
func (s *State) taken(h *host, slot int) bool {
	return slices.ContainsFunc(s.workers, func(w *worker) bool { return w.host == h && w.slot == slot })
}

// foreseen returns the places of the next epoch if all staying workers came, by rank. The local rank is the slot.
func (s *State) foreseen() []Place {
	var list []*worker
	for _, w := range s.workers {
		if w.phase != ending && !s.leaving(w) {
			list = append(list, w)
		}
	}
	source := s.source
	if !slices.Contains(list, source) {
		source = slices.MinFunc(list, func(a, b *worker) int {
			return cmp.Or(compare(b.veteran, a.veteran), cmp.Compare(a.host.index, b.host.index),
				cmp.Compare(a.slot, b.slot))
		})
	}
	places := s.places(list, source)
	for i := range places {
		p := &places[i]
		p.LocalRank = s.worker(p.Worker).slot
		p.LocalSize = max(p.LocalSize, p.LocalRank+1)
	}
	return places
}
