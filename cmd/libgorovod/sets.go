package main

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// ints copies C ints.
func ints(c []C.int) []int {
	out := make([]int, len(c))
	for i, v := range c {
		out[i] = int(v)
	}
	return out
}

//export goAddProcessSet
func goAddProcessSet(ranks *C.int, n C.int, reason *C.char) C.int {
	return added(ranks, n, reason, process.AddSet)
}

// added is the id of the process set that add registers, or the error's number.
func added(ranks *C.int, n C.int, reason *C.char, add func(ranks []int) (int, error)) C.int {
	id, err := add(ints(unsafe.Slice(ranks, max(0, int(n)))))
	if err != nil {
		explain(reason, err.Error())
		return setError(err)
	}
	return C.int(id)
}

//export goKeepProcessSets
func goKeepProcessSets(reason *C.char) C.int {
	if err := process.KeepSets(); err != nil {
		explain(reason, err.Error())
		return setError(err)
	}
	return 0
}

//export goAddProcessSetOfTheRest
func goAddProcessSetOfTheRest(ranks *C.int, n C.int, reason *C.char) C.int {
	return added(ranks, n, reason, process.AddSetOfTheRest)
}

//export goRemoveProcessSet
func goRemoveProcessSet(id C.int, reason *C.char) C.int {
	if err := process.RemoveSet(int(id)); err != nil {
		explain(reason, err.Error())
		return setError(err)
	}
	return id
}

// setError returns Horovod's number for an error about a process set.
func setError(err error) C.int {
	switch {
	case errors.Is(err, engine.ErrNotInitialized):
		return C.HOROVOD_PROCESS_SET_ERROR_INIT
	case errors.Is(err, process.ErrSetsAreFixed):
		return C.HOROVOD_PROCESS_SET_ERROR_DYNAMIC
	case errors.Is(err, engine.ErrSetExists):
		return C.HOROVOD_PROCESS_SET_ERROR_EXISTING_SET
	case errors.Is(err, engine.ErrUnknownSet):
		return C.HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET
	}
	var e *engine.Error
	if errors.As(err, &e) && (e.Code == engine.InvalidArgument || e.Code == engine.PreconditionError) {
		// Ranks that do not exist, that stand twice, or that differ between the processes. In Horovod the process dies.
		return C.HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET
	}
	return C.HOROVOD_PROCESS_SET_ERROR_SHUTDOWN
}

// set finds a process set; status is Horovod's error number if there is none.
func set(id C.int) (s engine.Set, status C.int) {
	w := process.World()
	if w == nil {
		return s, C.HOROVOD_PROCESS_SET_ERROR_INIT
	}
	s, ok := w.Engine.Set(int(id))
	if !ok {
		return s, C.HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET
	}
	return s, 0
}

//export goProcessSetRank
func goProcessSetRank(id C.int) C.int {
	s, status := set(id)
	if status < 0 {
		return status
	}
	rank := slices.Index(s.Ranks, int(goTopology(0)))
	if rank < 0 {
		return C.HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET
	}
	return C.int(rank)
}

//export goProcessSetIncluded
func goProcessSetIncluded(id C.int) C.int {
	s, status := set(id)
	if status < 0 {
		return status
	}
	if slices.Contains(s.Ranks, int(goTopology(0))) {
		return 1
	}
	return 0
}

// goProcessSetRanks returns the size of a set, and fills ranks unless it is NULL.
//
//export goProcessSetRanks
func goProcessSetRanks(id C.int, ranks *C.int) C.int {
	s, status := set(id)
	if status < 0 {
		return status
	}
	if ranks != nil {
		out := unsafe.Slice(ranks, len(s.Ranks))
		for i, r := range s.Ranks {
			out[i] = C.int(r)
		}
	}
	return C.int(len(s.Ranks))
}

// goProcessSetIDs returns the number of sets, and fills ids unless it is NULL.
//
//export goProcessSetIDs
func goProcessSetIDs(ids *C.int) C.int {
	w := process.World()
	if w == nil {
		if ids != nil {
			*ids = 0
		}
		return 1
	}
	sets := w.Engine.Sets()
	if ids != nil {
		out := unsafe.Slice(ids, len(sets))
		for i, s := range sets {
			out[i] = C.int(s.ID)
		}
	}
	return C.int(len(sets))
}
