package process

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// ErrSetsAreFixed: process sets can't be changed after Init.
var ErrSetsAreFixed = errors.New("process sets are fixed: set HOROVOD_DYNAMIC_PROCESS_SETS=1 before hvd.init() to " +
	"add and remove them later")

// AddSet registers a process set; see engine.AddSet. In an elastic job, a set keeps those of its ranks that exist
// through all epochs, and AddSet returns at once if the set is registered already.
func AddSet(ranks []int) (int, error) { return addSet(ranks, (*engine.Engine).AddSet) }

// AddSetOfTheRest is AddSet that also works after a rank has left: see engine.AddSetOfTheRest.
func AddSetOfTheRest(ranks []int) (int, error) {
	return addSet(ranks, (*engine.Engine).AddSetOfTheRest)
}

func addSet(ranks []int, add func(e *engine.Engine, ranks []int) (int, error)) (int, error) {
	w := current.Load()
	if w == nil {
		return 0, engine.ErrNotInitialized
	}
	if !w.Config.DynamicSets {
		return 0, ErrSetsAreFixed
	}
	there := ThereOf(w, ranks)
	if len(there) == 0 {
		there = ranks // all ranks, or no existing rank, which is an error
	}
	if id, ok := known(w, there); ok {
		rememberSet(w, ranks)
		return id, nil
	}
	id, err := add(w.Engine, there)
	if err == nil {
		rememberSet(w, ranks)
	}
	return id, err
}

// KeepSets lets process sets go on after a rank has left that is in none of them: see engine.KeepSets.
func KeepSets() error {
	w := current.Load()
	if w == nil {
		return engine.ErrNotInitialized
	}
	w.Engine.KeepSets()
	return nil
}

// ThereOf returns, ascending, those ranks of a process set that exist in w: in an elastic job some may be beyond w's
// size.
func ThereOf(w *world.World, ranks []int) []int {
	if len(w.Config.ElasticDriver) == 0 {
		return ranks
	}
	there := clip(ranks, w.Place.Size)
	slices.Sort(there)
	return there
}

// RemoveSet removes a process set; see engine.RemoveSet.
func RemoveSet(id int) error {
	w := current.Load()
	if w == nil {
		return engine.ErrNotInitialized
	}
	if !w.Config.DynamicSets {
		return ErrSetsAreFixed
	}
	s, _ := w.Engine.Set(id)
	err := w.Engine.RemoveSet(id)
	if err == nil {
		forgetSet(w, s.Ranks)
	}
	return err
}

// Place returns this rank's number among the members of a process set, and how many members there are. kind names the
// operation that asks, for an error.
func Place(kind string, set int) (rank, size int, err error) {
	w := current.Load()
	if w == nil {
		return 0, 0, engine.ErrNotInitialized
	}
	s, ok := w.Engine.Set(set)
	rank = slices.Index(s.Ranks, w.Place.Rank)
	switch {
	case !ok:
		return 0, 0, &engine.Error{Code: engine.InvalidArgument,
			Reason: fmt.Sprintf("%s: Process set provided does not exist, or has not been registered (id %d).",
				kind, set)}
	case rank < 0:
		return 0, 0, &engine.Error{Code: engine.InvalidArgument,
			Reason: fmt.Sprintf("%s: Rank %d is not a member of the provided process set.", kind, w.Place.Rank)}
	}
	return rank, len(s.Ranks), nil
}
