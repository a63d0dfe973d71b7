package feed

import (
	"cmp"
	"slices"
)

// Told remembers what a rank has told the launcher of the ranks that it waited for.
type Told struct{ of map[int]uint64 }

// mostNews is how many ranks one answer tells of.
const mostNews = 16

// News leaves in WaitedFor only what has not been told, of the mostNews ranks with the most. What is left out is told
// later. So an answer stays small, whatever the size of the job.
func (t *Told) News(f *Figures) {
	news := make([]Late, 0, len(f.WaitedFor))
	for _, l := range f.WaitedFor {
		if n := l.Nanoseconds - t.of[l.Rank]; n > 0 {
			news = append(news, Late{l.Rank, n})
		}
	}
	slices.SortFunc(news, func(a, b Late) int { return cmp.Compare(b.Nanoseconds, a.Nanoseconds) })
	news = news[:min(len(news), mostNews)]
	slices.SortFunc(news, func(a, b Late) int { return cmp.Compare(a.Rank, b.Rank) })
	if t.of == nil {
		t.of = map[int]uint64{}
	}
	for _, l := range news {
		t.of[l.Rank] += l.Nanoseconds
	}
	f.WaitedFor = news
}
