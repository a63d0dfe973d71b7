// Package trial judges between two ways of doing one thing if only a measurement on this machine can tell which is
// faster. The program calls it while it works: a trial measures real work, and no result depends on the verdict.
//
// A trial has five parts. The caller does the first two, because its work sets the schedule; this package does the next
// two; the last is what the ranks must agree on.
//
//	turns      The ways take turns, close together, so that a change of the machine's load affects both.
//	warm-up    The first work after a change of way is not measured, because caches hold the other way's data.
//	statistic  Least if one thread is timed: interference only adds time. Median if ranks wait for one another: a rank
//	           that came late can also make the others look fast.
//	verdict    Better keeps the way in use, unless the other one wins by a margin. Otherwise noise would alternate them.
//	agreement  If all ranks must do the same, the choice follows from a number that all ranks count alike, or one rank
//	           decides and tells the others. Times differ between ranks, so no rank may infer another's choice.
//
// The trials:
//
//	what                       turns by            statistic  margin        agreement
//	collective.delivery        number of the chunk  Least     1.1, 1.5 early  schedule by number; each rank judges for
//	                                                                        itself, since others may write otherwise
//	collective.copyTrial       number of the op     Median    1.1           member 0 judges, and tells the others
//	autotune.Search.confirmed  point by point       Median    none          rank 0 judges, and publishes it in the log
//
// Two things look alike and are no trials. engine.tuner, with autotune.Search, searches many settings at once.
// shm.hugePages compares nothing: it spends a budget of time on huge pages while they cost little.
package trial

import (
	"cmp"
	"slices"
)

// Least lowers *least to a sample, which is positive. A *least of 0 means that there is no sample yet.
func Least(least *int64, sample int64) {
	if *least == 0 || sample < *least {
		*least = sample
	}
}

// Median sorts the samples, at least one, and returns the middle one; the lower of two.
func Median[T cmp.Ordered](samples []T) T {
	slices.Sort(samples)
	return samples[(len(samples)-1)/2]
}

// Better returns the way to use from now on, 0 or 1: the one in use, unless the other one's cost is smaller even after
// multiplication by the margin, which is at least 1.
func Better(used int, cost [2]float64, margin float64) int {
	if other := used ^ 1; cost[other]*margin < cost[used] {
		return other
	}
	return used
}
