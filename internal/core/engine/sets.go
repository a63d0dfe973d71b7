package engine

import (
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Errors of the process-set calls.
var (
	// ErrSetExists: a set of these ranks is registered already.
	ErrSetExists = &Error{InvalidArgument, "a process set of these ranks exists already"}
	// ErrUnknownSet: no set has this id.
	ErrUnknownSet = &Error{InvalidArgument, "no process set has this id"}
)

// setChangeName is the name of every change of the process sets. One name allows one change at a time.
const setChangeName = "process_set.change"

// MaxSets is the most process sets at a time, the world included: the segment of shared memory has room for so many
// lanes.
const MaxSets = 32

// processSet is a set of ranks under a number. Set 0 is the world.
type processSet struct {
	id      int
	members []int // world ranks, ascending
	lane    *lane // nil on ranks that are not members, and until it is open
}

// AddSet registers a process set and returns its id, the same on all ranks. All
// ranks of the world call it with the same ranks, in the same order of calls. It
// blocks until they have. An empty list means all ranks.
func (e *Engine) AddSet(ranks []int) (int, error) { return e.addSet(ranks, e.agreeOnSet) }

// AddSetOfTheRest is AddSet that also works after KeepSets and a departure. Then the world's log has ended, so nothing
// checks that all ranks that are left make the same calls in the same order, and that no member has left, except for
// the first rank to leave. The callers see to that.
func (e *Engine) AddSetOfTheRest(ranks []int) (int, error) {
	return e.addSet(ranks, func(members []int) (int, *Error) {
		if !e.KeepsSets() || e.firstToLeave() < 0 {
			if id, err := e.agreeOnSet(members); err == nil || !e.KeepsSets() || e.firstToLeave() < 0 {
				return id, err
			}
		}
		if f := e.failure.Load(); f != nil {
			return 0, e.world.words(f, addingSet)
		}
		if first := e.firstToLeave(); slices.Contains(members, first) {
			return 0, errorf(PreconditionError, "process set %v: %s has left", members, e.opts.Describe(first))
		}
		return e.freeSet(), nil
	})
}

// addSet registers a process set under the id that number returns.
func (e *Engine) addSet(ranks []int, number func(members []int) (int, *Error)) (int, error) {
	e.setCalls.Lock()
	defer e.setCalls.Unlock()
	members, err := e.checkSet(ranks)
	if err != nil {
		return 0, err
	}
	id, failed := number(members)
	if failed != nil {
		return 0, failed
	}
	return e.openSet(id, members)
}

// checkSet returns the ranks of a new process set, ascending, if they can be one. The answer is the same on all ranks.
func (e *Engine) checkSet(ranks []int) ([]int, error) {
	members := slices.Clone(ranks)
	slices.Sort(members)
	if len(members) == 0 {
		members = e.world.members
	}
	for i, r := range members {
		if r < 0 || r >= e.opts.Size {
			return nil, errorf(InvalidArgument, "process set %v: invalid rank %d (size %d)", ranks, r, e.opts.Size)
		}
		if i > 0 && members[i-1] == r {
			return nil, errorf(InvalidArgument, "process set %v: duplicate rank %d", ranks, r)
		}
	}
	sets := e.Sets()
	if len(ranks) > 0 { // an empty list registers a second set of all ranks
		for _, s := range sets {
			if slices.Equal(s.Ranks, members) {
				return nil, ErrSetExists
			}
		}
	}
	if n := len(sets); n >= MaxSets {
		return nil, errorf(InvalidArgument, "process set %v: there are %d already, the world among them; "+
			"remove one first", ranks, n)
	}
	return members, nil
}

// agreeOnSet lets the coordinator choose the id of a process set, once all ranks have called AddSet.
func (e *Engine) agreeOnSet(members []int) (int, *Error) {
	list := make([]int32, len(members))
	for i, r := range members {
		list[i] = int32(r)
	}
	en, err := e.enqueueSet(&Op{Type: operation.AddProcessSet, Name: setChangeName, Ranks: list})
	if err != nil {
		return 0, err
	}
	defer en.Release()
	en.Wait(-1)
	if en.Err() != nil {
		return 0, en.Err()
	}
	return int(en.root), nil
}

// freeSet is the lowest id that no process set has: the same on all ranks, because they know all sets.
func (e *Engine) freeSet() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := 1
	for e.sets[id] != nil {
		id++
	}
	return id
}

// openSet registers a process set whose id is known. The caller holds setCalls.
func (e *Engine) openSet(id int, members []int) (int, error) {
	failpoint.Here("set")
	s := &processSet{id: id, members: members}
	e.added++ // the same on all ranks: all take part in every call
	if slices.Contains(members, e.opts.Rank) {
		l, err := newLane(e, s.id, e.added, members)
		if err != nil {
			if f := e.failure.Load(); f != nil {
				return 0, e.world.words(f, addingSet) // the network was closed, in order or not, while the lane opened
			}
			e.net.Abort(fmt.Errorf("process set %d on %s: %w", s.id, e.opts.Describe(e.opts.Rank), err))
			// The network may have failed first, and caused err.
			return 0, e.world.words(e.aborted(e.net.Err()), addingSet)
		}
		s.lane = l
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.failure.Load(); f != nil {
		return 0, e.world.words(f, addingSet)
	}
	e.sets[s.id] = s
	e.publishLanes()
	e.bell.Ring() // a driver that sleeps amid the other lanes' collectives does not hear of this one's
	return s.id, nil
}

// RemoveSet removes a process set. All ranks of the world call it; it blocks
// until they have. Operations pending in the set end with Aborted.
func (e *Engine) RemoveSet(id int) error {
	e.setCalls.Lock()
	defer e.setCalls.Unlock()
	e.mu.Lock()
	_, known := e.sets[id]
	e.mu.Unlock()
	if !known || id == 0 {
		return ErrUnknownSet
	}
	if first := e.firstToLeave(); first >= 0 && e.KeepsSets() { // the job goes on, however that rank has ended
		return &Error{UnknownError, LeftText(e.opts.Describe(first) + " has shut down")}
	}
	en, err := e.enqueueSet(&Op{Type: operation.RemoveProcessSet, Name: setChangeName, Root: id})
	if err != nil {
		return err
	}
	defer en.Release()
	en.Wait(-1)
	if en.Err() != nil {
		return en.Err()
	}
	return nil
}

func (e *Engine) enqueueSet(op *Op) (*Entry, *Error) {
	op.DType, op.Prescale, op.Postscale, op.WillWait = tensor.Uint8, 1, 1, true
	return e.Enqueue(op)
}

// dropSet ends a process set when its removal is executed. The driver calls it.
func (e *Engine) dropSet(id int) {
	e.mu.Lock()
	s := e.sets[id]
	delete(e.sets, id)
	e.publishLanes()
	if s != nil && s.lane != nil {
		s.lane.removed = true // under mu: nothing is announced on it any more
	}
	e.mu.Unlock()
	if s == nil || s.lane == nil {
		return
	}
	// All members give up the operation under way: nobody advances it any more.
	s.lane.closeCarriers(nil)
	if err := e.net.CloseLane(id); err != nil {
		e.net.Abort(fmt.Errorf("close the lane of process set %d: %w", id, err))
		return
	}
	s.lane.failAll(&Error{Aborted, "Process set has been removed"})
	s.lane.free()
}

// publishLanes renews the list that the driver walks. The caller holds mu.
func (e *Engine) publishLanes() {
	lanes := make([]*lane, 0, len(e.sets))
	for _, s := range e.sets {
		if s.lane != nil {
			lanes = append(lanes, s.lane)
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return a.id - b.id })
	e.lanes.Store(&lanes)
}

// Set describes a process set.
type Set struct {
	ID    int
	Ranks []int // ascending; not to be changed
}

// Sets lists the process sets by id, the world first.
func (e *Engine) Sets() []Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	sets := make([]Set, 0, len(e.sets))
	for _, s := range e.sets {
		sets = append(sets, Set{s.id, s.members})
	}
	slices.SortFunc(sets, func(a, b Set) int { return a.ID - b.ID })
	return sets
}

// Set returns the process set with this id.
func (e *Engine) Set(id int) (Set, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.sets[id]
	if !ok {
		return Set{}, false
	}
	return Set{s.id, s.members}, true
}
