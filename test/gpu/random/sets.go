//go:build cgo && linux

package main

import (
	"slices"

	"github.com/gorovod/gorovod/internal/joining/process"
)

// set is a process set.
type set struct {
	id    int
	ranks []int
}

// rank returns this process's number among the members, or -1 if it is none.
func (s *set) rank() int { return slices.Index(s.ranks, process.World().Place.Rank) }

// makeSets makes all process sets: all ranks, each with the next, and the last one alone.
func makeSets() ([]*set, error) {
	size := process.World().Place.Size
	all := []*set{{}}
	for i := range size {
		all[0].ranks = append(all[0].ranks, i)
		if i+1 < size && size > 2 {
			all = append(all, &set{ranks: []int{i, i + 1}})
		}
	}
	if size > 1 {
		all = append(all, &set{ranks: []int{size - 1}})
	}
	for _, s := range all[1:] {
		var err error
		if s.id, err = process.AddSet(s.ranks); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// renew removes a process set and makes it again. All ranks call it at the same time. The set's communicator ends in
// order, and the next operation makes another one.
func (s *set) renew() (err error) {
	if err = process.RemoveSet(s.id); err == nil {
		s.id, err = process.AddSet(s.ranks)
	}
	return err
}
