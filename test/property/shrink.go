package property

import (
	"slices"
	"time"
)

// Bounds of shrink: runs of the property, and time.
const (
	mostTries = 2000
	mostTime  = 20 * time.Second
)

// shrink looks for a smaller case that fails, too. A case is smaller if it has fewer draws, or if it has as many and
// the first draw that differs is smaller. shrink repeats these steps until none helps:
//
//  1. Leave out a run of draws: of half of all, of a quarter, … of one.
//  2. Set a run of draws to zero, in the same way.
//  3. Make one draw smaller, by bisection.
//  4. Leave out one draw and lower an earlier one by one: a list's length and its element.
func shrink(failed *T, play func(draws []uint64) *T) (smallest *T, tries int) {
	s := &shrinking{best: failed, play: play, until: time.Now().Add(mostTime)}
	for progress := true; progress && !s.spent(); {
		before := s.best
		s.runs(func(draws []uint64, begin, end int) []uint64 { return slices.Delete(draws, begin, end) })
		s.runs(func(draws []uint64, begin, end int) []uint64 { clear(draws[begin:end]); return draws })
		s.bisect()
		s.shorten()
		progress = s.best != before
	}
	return s.best, s.tries
}

type shrinking struct {
	best  *T
	play  func(draws []uint64) *T
	tries int
	until time.Time
}

func (s *shrinking) spent() bool { return s.tries >= mostTries || time.Now().After(s.until) }

// try runs a smaller case, and keeps it if it fails.
func (s *shrinking) try(draws []uint64) bool {
	if s.spent() || !smaller(draws, s.best.drawn) {
		return false
	}
	s.tries++
	c := s.play(draws)
	if !c.Failed() || !smaller(c.drawn, s.best.drawn) {
		return false
	}
	s.best = c
	return true
}

func smaller(a, b []uint64) bool {
	return len(a) < len(b) || len(a) == len(b) && slices.Compare(a, b) < 0
}

// runs tries a change on runs of draws, from long to short ones.
func (s *shrinking) runs(change func(draws []uint64, begin, end int) []uint64) {
	for length := max(1, len(s.best.drawn)/2); length > 0; length /= 2 {
		for begin := 0; begin+length <= len(s.best.drawn) && !s.spent(); {
			if !s.try(change(slices.Clone(s.best.drawn), begin, begin+length)) {
				begin += length
			}
		}
	}
}

// bisect makes single draws smaller.
func (s *shrinking) bisect() {
	for i := 0; i < len(s.best.drawn); i++ {
		for low := uint64(0); i < len(s.best.drawn) && low < s.best.drawn[i] && !s.spent(); {
			draws := slices.Clone(s.best.drawn)
			draws[i] = low + (draws[i]-low)/2
			if middle := draws[i]; !s.try(draws) {
				low = middle + 1
			}
		}
	}
}

// shorten lowers one draw and leaves out a later one.
func (s *shrinking) shorten() {
	for i := 0; i < len(s.best.drawn); i++ {
		for j := i + 1; j < len(s.best.drawn) && s.best.drawn[i] > 0 && !s.spent(); j++ {
			draws := slices.Delete(slices.Clone(s.best.drawn), j, j+1)
			draws[i]--
			if s.try(draws) {
				j--
			}
		}
	}
}
