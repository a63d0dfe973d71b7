package membership

import (
	"fmt"
	"slices"
	"strings"
)

// mostNamed is the most workers that a message names.
const mostNamed = 8

// report says in one line how many workers on how many slots the job goes on with, and why. came are the members of the
// new epoch.
func (s *State) report(came []*worker) {
	before := s.size
	s.size = s.count(came)
	why := s.changes(came)
	if s.epoch == 1 || s.size == before && len(why) == 0 && !s.complained {
		return
	}
	most := s.offered()
	if s.c.Max > 0 {
		most = min(most, s.c.Max)
	}
	text := fmt.Sprintf("going on with %d of %d workers", s.size, most)
	if len(why) > 0 {
		text += ": " + strings.Join(why, "; ")
	}
	s.tell("%s", text)
}

// changes describes the changes of the workers since the last epoch began.
func (s *State) changes(came []*worker) (list []string) {
	var joined, coming []*worker
	for _, w := range came {
		if !w.veteran {
			joined = append(joined, w)
		}
	}
	for _, w := range s.in(starting) {
		if !s.leaving(w) {
			coming = append(coming, w)
		}
	}
	if s.trouble != "" {
		list = append(list, "they could not join one another: "+s.trouble)
	}
	if len(joined) > 0 {
		list = append(list, named(joined)+plural(joined, " has joined", " have joined"))
	}
	if len(coming) > 0 {
		list = append(list, named(coming)+plural(coming, " is starting", " are starting"))
	}
	// Some slots may have cooled down already.
	costs := slices.DeleteFunc(s.costs, func(w *worker) bool { return w.host.barred[w.slot] == 0 })
	if len(costs) > 0 {
		list = append(list, s.cost(costs))
	}
	s.costs, s.trouble = nil, ""
	return append(list, s.pauses()...)
}

// finish says which worker's end has finished the job.
func (s *State) finish() string {
	return fmt.Sprintf("worker %d on host %s ended with code 0, which ends the job", s.finisher.id,
		s.finisher.host.name)
}

// early says which worker's end has finished the job, and for which workers that was too early.
func (s *State) early() string {
	slices.SortFunc(s.unfinished, func(a, b *worker) int { return a.id - b.id })
	who := named(s.unfinished)
	if s.epoch == 0 {
		return fmt.Sprintf("%s; it did not call hvd.init(), where %s waited for it", s.finish(), who)
	}
	return fmt.Sprintf("%s, while %s had operations to do", s.finish(), who)
}

// named lists workers in words.
func named(workers []*worker) string {
	switch n := len(workers); {
	case n == 1:
		return fmt.Sprintf("worker %d", workers[0].id)
	case n > mostNamed:
		return fmt.Sprintf("%d workers", n)
	}
	ids := make([]string, len(workers))
	for i, w := range workers {
		ids[i] = fmt.Sprint(w.id)
	}
	last := len(ids) - 1
	return fmt.Sprintf("workers %s and %s", strings.Join(ids[:last], ", "), ids[last])
}

func plural(workers []*worker, one, several string) string {
	if len(workers) == 1 {
		return one
	}
	return several
}
