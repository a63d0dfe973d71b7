package hvd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/process"
)

// ProcessSet is a group of processes that run collectives among themselves. Sets
// may overlap, and their operations never wait for those of another set.
type ProcessSet struct {
	ranks []int // ascending
	id    int   // -1 until it is registered
}

// NewProcessSet describes a set of ranks. It can be used once it has been given
// to Init or AddProcessSet.
func NewProcessSet(ranks ...int) *ProcessSet {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	return &ProcessSet{ranks: ranks, id: -1}
}

// Ranks are the members, ascending.
func (s *ProcessSet) Ranks() []int { return slices.Clone(s.ranks) }

// Size is the number of members.
func (s *ProcessSet) Size() int { return len(s.ranks) }

// Rank is this process's place among the members, -1 if it is none.
func (s *ProcessSet) Rank() int { return slices.Index(s.ranks, Rank()) }

// Included reports whether this process is a member.
func (s *ProcessSet) Included() bool { return s.Rank() >= 0 }

// Errors of the process-set functions.
var (
	// ErrSetExists: there is a set of the same ranks.
	ErrSetExists error = engine.ErrSetExists
	// ErrUnknownSet: the set is not registered.
	ErrUnknownSet error = engine.ErrUnknownSet
	// ErrSetsAreFixed: HOROVOD_DYNAMIC_PROCESS_SETS=1 was not set before Init.
	ErrSetsAreFixed = process.ErrSetsAreFixed
)

// AddProcessSet registers s. All processes of the job, members or not, call it
// with the same ranks, in the same order of calls; it blocks until they have.
// HOROVOD_DYNAMIC_PROCESS_SETS=1 must have been set before Init.
func AddProcessSet(s *ProcessSet) error {
	id, err := process.AddSet(s.ranks)
	if err != nil {
		return err
	}
	s.id = id
	return nil
}

// RemoveProcessSet removes s. All processes of the job call it; it blocks until
// they have. Operations that are pending in s fail.
func RemoveProcessSet(s *ProcessSet) error {
	if err := process.RemoveSet(s.id); err != nil {
		return err
	}
	s.id = -1
	return nil
}

// adoptIDs finds the ids of sets that Init has registered.
func adoptIDs(sets []*ProcessSet) error {
	w := process.World()
	if w == nil {
		return errors.New("hvd: shut down during Init")
	}
	known := w.Engine.Sets()
	for i, s := range sets {
		at := slices.IndexFunc(known, func(k engine.Set) bool { return slices.Equal(k.Ranks, s.ranks) })
		if at < 0 || known[at].ID == 0 || slices.IndexFunc(sets[:i], func(o *ProcessSet) bool { return slices.Equal(o.ranks, s.ranks) }) >= 0 {
			return fmt.Errorf("hvd: process set %d of Init, %v, is a duplicate", i+1, s.ranks)
		}
		s.id = known[at].ID
	}
	return nil
}
