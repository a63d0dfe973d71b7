package overview

import (
	"cmp"
	"slices"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Table is a sparse table, of all ranks that have a part.
type Table struct {
	Set  int    `json:"set"` // process set
	Name string `json:"name"`

	Rows  uint64 `json:"rows"`
	Bytes uint64 `json:"bytes"`
	// Pull and Push are how many seconds one takes on a rank, on average since the start.
	Pull float64 `json:"pull"`
	Push float64 `json:"push"`
	// Hottest is the share of the lookups that goes to the 16 hottest keys: the mean of the ranks' estimates.
	Hottest float64 `json:"hottest"`
}

// mostTables is how many tables a Snapshot has: those with the most bytes.
const mostTables = 64

// tables adds up what the ranks tell of their tables.
func (j *Job) tables() []Table {
	type key struct {
		set  int
		name string
	}
	sums := map[key]*feed.Table{}
	telling := map[key]int{}
	for i := range j.ranks {
		if j.ranks[i].last == nil {
			continue
		}
		for k := range j.ranks[i].last.Tables {
			t := &j.ranks[i].last.Tables[k]
			id := key{t.Set, t.Name}
			sum := sums[id]
			if sum == nil {
				sum = &feed.Table{}
				sums[id] = sum
			}
			telling[id]++
			sum.Rows, sum.Bytes, sum.Hottest = sum.Rows+t.Rows, sum.Bytes+t.Bytes, sum.Hottest+t.Hottest
			sum.Pulls, sum.PullTime = sum.Pulls+t.Pulls, sum.PullTime+t.PullTime
			sum.Pushes, sum.PushTime = sum.Pushes+t.Pushes, sum.PushTime+t.PushTime
		}
	}
	var all []Table
	for id, t := range sums {
		all = append(all, Table{id.set, id.name, t.Rows, t.Bytes, feed.Seconds(t.PullTime) / float64(max(1, t.Pulls)),
			feed.Seconds(t.PushTime) / float64(max(1, t.Pushes)), t.HottestShare() / float64(telling[id])})
	}
	slices.SortFunc(all, func(a, b Table) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Set, b.Set), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostTables)]
}
