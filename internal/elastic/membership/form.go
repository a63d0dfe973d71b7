package membership

import (
	"cmp"
	"fmt"
	"slices"
)

// maxStrikes is how many epochs in a row may fail to come together although no worker has died.
const maxStrikes = 3

// form begins the next epoch, if it can.
func (s *State) form() {
	if s.holdOut() {
		return
	}
	came := s.in(ready)
	need := s.c.Min
	if s.epoch == 0 {
		need = s.c.NP
	}
	if s.short(s.count(came), need) {
		s.lacked, s.news = true, never
		return
	}
	if s.lacked && s.gathering() {
		return // wait for workers that start together with the one that makes them enough
	}
	if s.epoch > 0 {
		if s.c.ResetLimit >= 0 && s.resets >= s.c.ResetLimit {
			s.stop(fmt.Sprintf("Horovod was shutdown because number of resets during elastic job exceeded limit: %d",
				s.c.ResetLimit))
			return
		}
		if s.trouble = s.apart(came); s.trouble != "" {
			if s.strikes++; s.strikes >= maxStrikes {
				s.stop("the workers cannot join one another: " + s.trouble)
				return
			}
		}
		s.resets++
		s.advanced(came)
	}
	s.begin(came)
}

// apart says why the last epoch could not be joined, if no member was lost.
func (s *State) apart(came []*worker) string {
	if s.lost {
		return ""
	}
	for _, w := range came {
		if w.Trouble != "" {
			return w.Trouble
		}
	}
	s.strikes = 0
	return ""
}

// begin forms an epoch of the workers that have come. Workers that have the state go first.
func (s *State) begin(came []*worker) {
	slices.SortStableFunc(came, func(a, b *worker) int {
		return cmp.Or(compare(b.veteran, a.veteran), cmp.Compare(a.id, b.id))
	})
	if most := s.c.Max; most > 0 {
		for _, w := range came {
			if s.leaving(w) {
				most++ // a leaving source takes part only to hand its state over
			}
		}
		came = came[:min(len(came), most)]
	}
	source := came[0]
	for _, w := range came {
		if w.Commit > source.Commit {
			source = w
		}
	}
	s.epoch++
	f := Form{Epoch: s.epoch, Places: s.places(came, source), Sets: source.Sets, Cause: s.cause(came)}
	for _, w := range came {
		f.Sync = f.Sync || !w.Intact || !w.member
	}
	for _, w := range s.workers {
		w.member = false
	}
	s.report(came)
	for _, w := range came {
		if !w.veteran {
			w.since = s.now
		}
		w.phase, w.member, w.veteran = running, true, true
	}
	s.source, s.newest = source, source.Commit
	s.lost, s.lacked, s.complained, s.asked = false, false, false, NoUpdate
	s.holding, s.overdue = never, never
	s.news, s.gather = never, never
	s.act(f)
}

// cause says why an epoch is formed, before its members are members.
func (s *State) cause(came []*worker) Cause {
	switch {
	case s.epoch == 1:
		return ""
	case s.lost:
		return ByFailure
	case s.trouble != "":
		return ByApart
	case s.asked == Added|Removed:
		return ByChange
	case s.asked == Removed:
		return ByRemoval
	case s.asked == Added || slices.ContainsFunc(came, func(w *worker) bool { return !w.member }):
		return ByArrival
	}
	return ByError
}

// places orders the workers: the host of the source first, then the hosts in
// their order; inside a host the source first, then by slot.
func (s *State) places(came []*worker, source *worker) []Place {
	came = slices.Clone(came)
	slices.SortFunc(came, func(a, b *worker) int {
		return cmp.Or(
			compare(b.host == source.host, a.host == source.host),
			cmp.Compare(a.host.index, b.host.index),
			compare(b == source, a == source),
			cmp.Compare(a.slot, b.slot))
	})
	list := make([]Place, len(came))
	local, cross := map[*host]int{}, map[int]int{}
	for i, w := range came {
		l := local[w.host]
		list[i] = Place{Worker: w.id, Host: w.host.name, Rank: i, Size: len(came), LocalRank: l, CrossRank: cross[l]}
		local[w.host]++
		cross[l]++
	}
	for i, w := range came {
		list[i].LocalSize, list[i].CrossSize = local[w.host], cross[list[i].LocalRank]
	}
	return list
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
