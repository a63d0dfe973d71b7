package flight

import (
	"fmt"
	"slices"
	"time"
)

const (
	// recent is the time before the last operation in which ranks' lateness counts, and leastSpan how much of it the
	// records must cover: what is late once, such as a first step, says nothing.
	recent    = 10 * time.Second
	leastSpan = time.Second
	// notable is the share of the time that the others must wait for a rank before it counts as a straggler, as on the
	// dashboard.
	notable = 0.1
)

// straggler says that the other ranks wait for one rank most of the time that they wait, and that it is much; empty if
// there is no such rank. It needs the dumps of all ranks, because the last of those here may not be the last of all.
func straggler(dumps []*Dump) string {
	if len(dumps) < 2 || len(dumps) != dumps[0].Size {
		return ""
	}
	lost := make([]time.Duration, len(dumps))
	until := make([]int64, len(dumps)) // a rank that is late for many tensors at once costs that time once
	meetings := meetings(dumps)
	if len(meetings) < 3 {
		return ""
	}
	begin, end, all := meetings[0].last, meetings[len(meetings)-1].last, time.Duration(0)
	if time.Duration(end-begin) < leastSpan {
		return ""
	}
	until[meetings[0].rank] = meetings[0].last
	for _, m := range meetings[1:] {
		if late := time.Duration(m.last - max(m.others, until[m.rank])); late > 0 {
			lost[m.rank] += late
			all += late
		}
		until[m.rank] = m.last
	}
	worst := slices.Index(lost, slices.Max(lost))
	share := float64(lost[worst]) / float64(max(1, end-begin))
	if share < notable || lost[worst]*2 < all {
		return ""
	}
	return fmt.Sprintf("waits for rank %d in %.0f %% of the last %s", dumps[worst].Rank, 100*min(share, 1),
		seconds(time.Duration(end-begin)))
}

// meeting is an operation that all ranks have submitted: the index of the last rank, when it did, and when the others
// had.
type meeting struct {
	rank         int
	last, others int64
}

// meetings are the recent operations of the world, by the time at which all ranks had submitted them.
func meetings(dumps []*Dump) (all []meeting) {
	submitted := map[uint64][]int64{}
	for _, d := range dumps {
		for _, r := range d.Records {
			if r.Set == 0 && r.Sequence > 0 && r.Op != "JOIN" {
				submitted[r.Sequence] = append(submitted[r.Sequence], r.Submitted)
			}
		}
	}
	for _, times := range submitted {
		if len(times) != len(dumps) { // one rank has forgotten it, or has not told of it yet
			continue
		}
		m := meeting{last: slices.Max(times)}
		m.rank = slices.Index(times, m.last)
		for i, t := range times {
			if i != m.rank {
				m.others = max(m.others, t)
			}
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b meeting) int { return int(a.last - b.last) })
	for len(all) > 0 && time.Duration(all[len(all)-1].last-all[0].last) > recent {
		all = all[1:]
	}
	return all
}
