package otlp

import (
	"cmp"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// A job may make 100,000 steps a second, so a step has no span of its own: a span "steps" covers an interval, and
// says how many steps ended in it and what they were like on average. Intervals double from firstInterval to
// lastInterval, so after the first minute a job of any speed makes at most 6 × (1 + mostLate) spans a minute. An
// interval without the end of a step makes none: the next one begins where it began. So a step longer than lastInterval
// has a span to itself.
const (
	firstInterval = time.Second
	lastInterval  = 10 * time.Second
	// mostLate is how many ranks for which the others waited have spans below that of the steps.
	mostLate = 3
	// leastLate is the share of the interval that the others must have waited for such a rank.
	leastLate = 0.05
)

// interval is the work of a world's ranks since its last span of steps.
type interval struct {
	from  uint64 // the first generation of the world
	ranks []worker
}

// worker is what one rank has done in the interval.
type worker struct {
	generation uint64
	host       string
	since      time.Time // its last answer before the interval, or its first one
	told       time.Time // its newest answer
	last       *feed.Figures

	sums
}

// sums are of one interval. Times are in nanoseconds.
type sums struct {
	covered                uint64 // by the answers
	steps, stepTime        uint64
	waited, busy, lateness uint64 // lateness: what the others have waited for this rank
	samples                uint64
}

// Take takes a rank's figures: see rendezvous.Server.Figures. It drops what is damaged, or of a world that has ended.
func (j *Job) Take(number int, generation uint64, host string, value []byte) {
	if j == nil {
		return
	}
	f, err := feed.Decode(value)
	if err != nil {
		return // the rank has none yet
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.broke.IsZero() {
		return // the answer comes after the end of the world
	}
	if j.interval.begins(number, generation) {
		j.endInterval()
	}
	j.interval.take(time.Now(), number, generation, host, f)
}

// begins reports whether another process of a rank has begun, whose figures begin anew.
func (v *interval) begins(number int, generation uint64) bool {
	return number >= 0 && number < len(v.ranks) && v.ranks[number].last != nil &&
		generation > v.ranks[number].generation
}

func (v *interval) take(now time.Time, number int, generation uint64, host string, f *feed.Figures) {
	if generation < v.from || number < 0 || number >= len(v.ranks) || generation < v.ranks[number].generation {
		return
	}
	w := &v.ranks[number]
	if w.last != nil && generation == w.generation {
		f.Complete(w.last)
		w.covered += uint64(max(0, now.Sub(w.told)))
		w.steps += more(w.last.Steps.Count(), f.Steps.Count())
		w.stepTime += more(w.last.Steps.Sum, f.Steps.Sum)
		w.waited += more(w.last.Waited, f.Waited)
		w.busy += more(busy(w.last), busy(f))
		w.samples += more(w.last.Samples, f.Samples)
		for _, l := range f.WaitedFor {
			if l.Rank < len(v.ranks) {
				v.ranks[l.Rank].lateness += l.Nanoseconds
			}
		}
	} else {
		w.since, w.sums = now, sums{lateness: w.lateness}
	}
	w.generation, w.host, w.told, w.last = generation, host, now, f
}

func more(before, now uint64) uint64 { return max(before, now) - before }

func busy(f *feed.Figures) (sum uint64) {
	for i := range f.Works {
		sum += f.Works[i].Times.Sum
	}
	return sum
}

// followSteps makes the spans of steps, and asks the ranks for the figures of the next one, until the job ends.
func (j *Job) followSteps() {
	every := firstInterval
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-j.over:
			return
		}
		j.mu.Lock()
		j.endInterval()
		ask := j.ask
		j.mu.Unlock()
		if ask != nil {
			ask()
		}
		every = min(2*every, lastInterval)
		t.Reset(every)
	}
}

// endInterval makes the spans of the interval, if a step has ended in it. The answers of two ranks cover slightly
// different times; the span has those of the rank whose steps it counts. The caller holds mu.
func (j *Job) endInterval() {
	v := &j.interval
	var all sums
	ranks := 0
	lead := &worker{} // has told most steps
	for i := range v.ranks {
		w := &v.ranks[i]
		if w.covered > 0 {
			ranks++
		}
		if w.steps > lead.steps {
			lead = w
		}
		all.covered += w.covered
		all.steps += w.steps
		all.stepTime += w.stepTime
		all.waited += w.waited
		all.busy += w.busy
		all.samples += w.samples
	}
	if lead.steps == 0 || j.world == nil || !lead.told.After(lead.since) {
		return
	}
	share := func(ns uint64) float64 { return min(1, float64(ns)/float64(max(1, all.covered))) }
	waiting := share(all.waited)
	communicating := min(1-waiting, share(all.busy))
	s := span{TraceID: j.trace, SpanID: randomID(8), ParentID: j.world.SpanID, Name: "steps", Kind: internalKind,
		Start: nanos(lead.since), End: nanos(lead.told), Attributes: []attribute{
			number("horovod.steps", int(lead.steps)),
			decimal("horovod.step.seconds", feed.Seconds(all.stepTime)/float64(all.steps)),
			decimal("horovod.computing", 1-waiting-communicating),
			decimal("horovod.waiting", waiting),
			decimal("horovod.communicating", communicating),
			number("horovod.ranks", ranks),
		}}
	if all.samples > 0 {
		s.Attributes = append(s.Attributes, number("horovod.samples", int(all.samples)))
	}
	late := v.late(lead.told.Sub(lead.since))
	if len(late) > 0 {
		s.Attributes = append(s.Attributes, v.about(late[0])...)
	}
	spans := []span{s}
	for _, i := range late {
		spans = append(spans, span{TraceID: j.trace, SpanID: randomID(8), ParentID: s.SpanID, Name: "late",
			Kind: internalKind, Start: s.Start, End: s.End, Attributes: v.about(i)})
	}
	j.e.addSteps(spans)
	for i := range v.ranks {
		v.ranks[i].since, v.ranks[i].sums = v.ranks[i].told, sums{}
	}
}

// late are the ranks for which the others waited for a notable part of an interval that took so long, the latest first.
func (v *interval) late(took time.Duration) (ranks []int) {
	for i := range v.ranks {
		if v.seconds(i) >= leastLate*took.Seconds() {
			ranks = append(ranks, i)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(v.ranks[b].lateness, v.ranks[a].lateness) })
	return ranks[:min(len(ranks), mostLate)]
}

// seconds is how long each of the others has waited for a rank, on average.
func (v *interval) seconds(rank int) float64 {
	return feed.Seconds(v.ranks[rank].lateness) / float64(max(1, len(v.ranks)-1))
}

// about describes a rank for which the others waited.
func (v *interval) about(rank int) []attribute {
	return []attribute{number("horovod.slowest.rank", rank), text("horovod.slowest.host", v.ranks[rank].host),
		decimal("horovod.slowest.waited_seconds", v.seconds(rank))}
}
