package membership

import (
	"slices"
	"time"
)

const (
	// News waits for starting workers, at least shortGather and at most longGather after their start.
	shortGather = 2 * time.Second
	longGather  = time.Minute
)

// notify asks the members to come together if that would change anything. All workers of one discovery cause one reset,
// if they start in time.
func (s *State) notify() {
	members := s.in(running)
	if s.stopped || s.lost || s.epoch == 0 || len(members) == 0 {
		return
	}
	update := s.update(members)
	if update&^s.asked == 0 {
		s.news, s.gather = never, never
		return
	}
	if s.gathering() {
		return
	}
	s.news, s.gather = never, never
	s.asked |= update
	n := Notify{Update: s.asked}
	for _, w := range members {
		n.Workers = append(n.Workers, w.id)
	}
	s.act(n)
}

// update says what would change for the members if they came together.
func (s *State) update(members []*worker) (update HostUpdate) {
	if s.c.Max == 0 || len(members) < s.c.Max || slices.ContainsFunc(members, s.leaving) {
		if slices.ContainsFunc(s.in(ready), func(w *worker) bool { return !w.member }) {
			update |= Added
		}
	}
	if slices.ContainsFunc(members, s.leaving) {
		update |= Removed
	}
	return update
}

// gathering reports whether the news waits for workers that were starting when it came. It waits, from their start,
// twice as long as the slowest worker of the job has needed so far.
func (s *State) gathering() bool {
	s.news = min(s.news, s.now)
	hold := min(max(2*s.startup, shortGather), longGather)
	s.gather = never
	for _, w := range s.in(starting) {
		if until := w.started + hold; w.started <= s.news && until > s.now && (s.gather == never || until > s.gather) {
			s.gather = until
		}
	}
	return s.gather != never
}
