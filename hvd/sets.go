package hvd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// ProcessSet is a group of processes that run collectives among themselves. Sets
// may overlap, and their operations never wait for those of another set.
type ProcessSet struct {
	ranks []int        // ascending
	id    int          // -1 while it is not registered
	in    *world.World // the world in which it is registered
	there []int        // its ranks in that world, ascending
}

// NewProcessSet describes a set of ranks, in any order. Give it to Init or
// AddProcessSet before you use it.
func NewProcessSet(ranks ...int) *ProcessSet {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	return &ProcessSet{ranks: ranks, id: -1}
}

// Ranks returns the members in ascending order. In an elastic job it leaves out those that the job lacks now.
func (s *ProcessSet) Ranks() []int { return slices.Clone(s.members()) }

// Size is the number of members.
func (s *ProcessSet) Size() int { return len(s.members()) }

// Rank is this process's number among the members, from 0; -1 if it is not a member.
func (s *ProcessSet) Rank() int { return slices.Index(s.members(), Rank()) }

func (s *ProcessSet) members() []int {
	if s.in != nil && s.in == process.World() {
		return s.there
	}
	return s.ranks
}

// bind notes that s has the number id in w.
func (s *ProcessSet) bind(w *world.World, id int) {
	s.id, s.in, s.there = id, w, s.ranks
	if there := process.ThereOf(w, s.ranks); len(there) > 0 {
		s.there = there
	}
}

// Included reports whether this process is a member.
func (s *ProcessSet) Included() bool { return s.Rank() >= 0 }

// AddProcessSet registers s until RemoveProcessSet or Shutdown. All processes of the
// job, members or not, call it with the same ranks, in the same order of calls. It
// blocks until they have.
//
// HOROVOD_DYNAMIC_PROCESS_SETS=1 must have been set before Init, else the error is
// ErrSetsAreFixed. The other errors are ErrSetExists, ErrInvalidArgument for ranks
// outside the job, and ErrInternal.
func AddProcessSet(s *ProcessSet) error {
	id, err := process.AddSet(s.ranks)
	if err != nil {
		return wrapAny(err)
	}
	if w := process.World(); w != nil {
		s.bind(w, id)
	}
	return nil
}

// RemoveProcessSet removes s. All processes of the job call it, and it blocks until
// they have. Operations that are pending in s fail with ErrAborted. If s is not
// registered, the error is ErrUnknownSet, at once.
func RemoveProcessSet(s *ProcessSet) error {
	id, err := s.registered()
	if err != nil {
		return err
	}
	if err := process.RemoveSet(id); err != nil {
		return wrapAny(err)
	}
	s.id, s.in, s.there = -1, nil, nil
	return nil
}

// registered returns the number of s in the present world.
func (s *ProcessSet) registered() (int, error) {
	w := process.World()
	switch {
	case w == nil:
		return 0, ErrNotInitialized
	case s.id < 0 || s.in != w:
		return 0, &opError{ErrInvalidArgument, fmt.Errorf(
			"the process set of ranks %v is not registered: give it to Init or AddProcessSet, on all processes: %w",
			s.ranks, ErrUnknownSet)}
	}
	return s.id, nil
}

// adoptIDs gives the sets the ids under which Init has registered them.
func adoptIDs(sets []*ProcessSet) error {
	w := process.World()
	if w == nil {
		return errors.New("hvd: shut down during Init")
	}
	known := w.Engine.Sets()
	for i, s := range sets {
		there := process.ThereOf(w, s.ranks)
		if len(there) == 0 && len(s.ranks) > 0 {
			continue // not registered before the job has grown
		}
		at := slices.IndexFunc(known, func(k engine.Set) bool { return slices.Equal(k.Ranks, there) })
		all := at >= 0 && known[at].ID == 0 && len(w.Config.ElasticDriver) == 0 // in an elastic job the world may grow
		if at < 0 || all || slices.IndexFunc(sets[:i],
			func(o *ProcessSet) bool { return slices.Equal(o.ranks, s.ranks) }) >= 0 {
			return fmt.Errorf("hvd: process set %d of Init, %v, is a duplicate: %w", i+1, s.ranks, ErrInvalidArgument)
		}
		s.bind(w, known[at].ID)
	}
	return nil
}
