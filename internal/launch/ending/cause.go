package ending

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Failure is the end of a process that has failed.
type Failure struct {
	// Worker is the process's number in its job: its rank, if ranks do not change.
	Worker int
	// Epoch is the last world in which the process had a place; 0 for none. Worlds of fixed ranks have number 1.
	Epoch uint64
	Death rendezvous.Death
}

// String is one line: which worker, and how it ended.
func (f Failure) String() string {
	who := fmt.Sprintf("worker %d", f.Worker)
	if f.Epoch > 0 && f.Death.Rank != f.Worker {
		who += fmt.Sprintf(", rank %d,", f.Death.Rank)
	}
	return fmt.Sprintf("%s %s %s", who, f.Death.Where(), f.Death.How())
}

// Failures are all failures that count, in order of arrival.
func (s *State) Failures() []Failure { return s.failures }

// First is what a rank reported before the failures, once the reports are collected; nil if none did.
func (s *State) First() *rendezvous.Failure { return s.first }

// Collected: the reports of ended processes have come. first is what a rank reported first of all; nil for nothing.
func (s *State) Collected(first *rendezvous.Failure) []Action {
	s.collected = true
	s.Reported(first)
	return s.announce(false)
}

// Reported: a rank has reported a failure. It counts once the reports are collected; earlier ones may still come.
func (s *State) Reported(first *rendezvous.Failure) {
	if s.collected && s.first == nil {
		s.first = first
	}
}

// Conclude: all processes have ended, so nothing more can come.
func (s *State) Conclude() []Action { return s.announce(true) }

// announce tells the user of the first failure, once, as soon as its root is known; not if the job survives failures.
// last: nothing more can come.
func (s *State) announce(last bool) []Action {
	if s.terms.Survives || s.announced || len(s.failures) == 0 {
		return nil
	}
	i, known := s.root()
	if !known && !last && s.stage < Terminated {
		return nil
	}
	s.announced = true
	f, because := s.failures[i], -1
	if s.first != nil && s.first.About != f.Death.Rank {
		because = s.first.About
	}
	return []Action{Announce{f, because, s.others && s.stage < Terminated}}
}

// root is the failure that made the others fail. It is unknown while the rank that others reported lives, because that
// rank may end by itself.
func (s *State) root() (i int, known bool) {
	i = Root(s.failures, s.first, s.asked)
	return i, s.first == nil || s.failures[i].Death.Rank == s.first.About || !s.living[s.first.About]
}

// Root is the failure that made the others fail. If there is none, ok is false.
func (s *State) Root() (f Failure, ok bool) {
	if len(s.failures) == 0 {
		return f, false
	}
	i, _ := s.root()
	return s.failures[i], true
}

// Root is the index of the failure that made the others fail; -1 if there are none. It is that of the rank that a rank
// reported first: the other ends are consequences, however early they come. Otherwise it is the first process to end.
// Processes that ended after asked, when they had been sent a signal, may have ended by that, unless all did; a zero
// asked means that none was sent.
func Root(failures []Failure, first *rendezvous.Failure, asked time.Time) int {
	late := func(f Failure) bool { return !asked.IsZero() && f.Death.At.After(asked) }
	if !slices.ContainsFunc(failures, func(f Failure) bool { return !late(f) }) {
		late = func(Failure) bool { return false }
	}
	root := -1
	for i, f := range failures {
		switch {
		case late(f):
		case first != nil && f.Death.Rank == first.About:
			return i
		case root < 0 || f.Death.At.Before(failures[root].Death.At):
			root = i
		}
	}
	return root
}
