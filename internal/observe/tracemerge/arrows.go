package tracemerge

import (
	"math"
	"slices"
	"time"
)

// arrow leads from the rank that came last to one that waited. Times are by the job's clock.
type arrow struct {
	from, to           *Rank
	fromTrack, toTrack int
	came               int64 // when the last rank came
	waited             int64 // since when the other rank had waited
	began              int64 // when the other rank's operation began
}

// arrows calls draw for each wait of a world that took min or longer, and adds up which ranks were waited for.
func (rep *Report) arrows(world []*Rank, min time.Duration, draw func(arrow)) error {
	for set := range sets(world) {
		waited := waits{}
		err := join(world, set, func(ops []*operation) {
			rep.Operations++
			whole := len(world) == world[0].Size && (set != 0 || !slices.Contains(ops, nil))
			rep.arrowsOf(world, ops, whole, float64(min/time.Microsecond), waited, draw)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waits are the last times in which a rank has waited for another one, in one process set: disjoint and ascending, at
// most mostWaits. Concurrent waits count once.
type waits map[[2]*Rank][]interval

// interval is a time in µs, by the job's clock.
type interval struct{ since, until int64 }

// mostWaits bounds the memory. join passes operations in the order of their agreement, so waits end nearly in order,
// and only one that began before mostWaits others counts a part of its time twice.
const mostWaits = 16

// add returns what a wait adds to the time in which a rank has waited for another one.
func (w waits) add(rank, late *Rank, since, came int64) (news int64) {
	k := [2]*Rank{rank, late}
	all := w[k]
	v := interval{since, came}
	until := len(all)
	for until > 0 && all[until-1].since > v.until {
		until--
	}
	from := until
	for ; from > 0 && all[from-1].until >= v.since; from-- {
		o := all[from-1]
		v = interval{min(v.since, o.since), max(v.until, o.until)}
		news -= o.until - o.since
	}
	all = slices.Replace(all, from, until, v)
	w[k] = all[max(0, len(all)-mostWaits):]
	return news + v.until - v.since
}

// surely: if a rank without a file may have been the last, the others must have waited this many times as long as the
// last known rank.
const surely = 10

// arrowsOf draws the arrows of one operation. whole: every rank has a file.
func (rep *Report) arrowsOf(world []*Rank, ops []*operation, whole bool, min float64, waited waits,
	draw func(arrow)) {
	last, longest := -1, false
	for i, o := range ops {
		if o != nil && o.came != 0 && (last < 0 || world[i].Clock.at(o.came) > world[last].Clock.at(ops[last].came)) {
			last = i
		}
	}
	if last < 0 {
		return
	}
	came := world[last].Clock.at(ops[last].came)
	if !whole { // the last known rank may itself have waited for an unknown rank
		min = max(min, surely*float64(ops[last].agreed-ops[last].came))
	}
	decided := true
	for i, o := range ops {
		if o == nil || o.came == 0 || i == last {
			continue
		}
		wait := float64(came - world[i].Clock.at(o.came))
		doubt := doubt(world[i], world[last])
		longest = longest || wait >= min
		if !(wait > doubt) { // or the doubt is not a number
			decided = false
		}
	}
	switch {
	case !longest:
		return
	case !decided:
		rep.Undecided++
		return
	}
	world[last].Last++
	for i, o := range ops {
		if o == nil || o.came == 0 || i == last {
			continue
		}
		since := world[i].Clock.at(o.came)
		if float64(came-since) < min {
			continue
		}
		world[last].Caused += waited.add(world[i], world[last], since, came)
		began := world[i].Clock.at(o.began)
		if o.began == 0 || began < came {
			continue // its file ends before, or the clocks' error exceeds the time that the operation took to begin
		}
		rep.Arrows++
		draw(arrow{from: world[last], to: world[i], fromTrack: ops[last].track, toTrack: o.track, came: came,
			waited: since, began: began})
	}
}

// doubt is how far the times of two ranks may be wrong relative to each other.
func doubt(a, b *Rank) float64 {
	if math.IsNaN(a.Clock.Error) || math.IsNaN(b.Clock.Error) {
		return math.NaN()
	}
	return a.Clock.Error + b.Clock.Error
}
