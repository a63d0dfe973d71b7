package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

// Snapshot is what a reader sees at one moment. Rates are of the last seconds.
type Snapshot struct {
	Time     int64  `json:"time"` // milliseconds since 1970
	Sentence string `json:"sentence"`
	Tone     Tone   `json:"tone"`
	// Straggler is the rank that the sentence blames, nil if it blames none.
	Straggler *Straggler `json:"straggler,omitempty"`
	// Where is where this rank's program is, or that of another one for which others wait; nil if it is not known.
	Where   *Where `json:"where,omitempty"`
	Version string `json:"version"`

	World   int      `json:"world"` // how often the job has been formed
	Size    int      `json:"size"`
	Joined  int      `json:"joined"`
	Telling int      `json:"telling"` // ranks that have told something of late
	Hosts   []string `json:"hosts"`

	Collectives   float64 `json:"collectives"`   // a second, on one rank
	Bytes         float64 `json:"bytes"`         // of tensors, a second, on one rank
	Step          float64 `json:"step"`          // seconds that a step takes; 0: unknown
	Steps         uint64  `json:"steps"`         // that there have been, of the rank with most
	Samples       float64 `json:"samples"`       // a second, on all ranks; 0: the program counts none
	Waiting       float64 `json:"waiting"`       // share of the time, on average
	Communicating float64 `json:"communicating"` // likewise: in collectives that all ranks have submitted

	Ranks   []Rank  `json:"ranks"`
	Open    []Open  `json:"open"`
	Kinds   []Kind  `json:"kinds"`
	Links   []Link  `json:"links"`
	Tables  []Table `json:"tables,omitempty"`
	History []Event `json:"history"`
	Column  column  `json:"column"`
}

// Rank is one rank of a Snapshot.
type Rank struct {
	Host    int   `json:"host"`    // index into Hosts, -1 while unknown
	Waiting uint8 `json:"waiting"` // percent of the last second
	Late    uint8 `json:"late"`    // percent of the last second in which the others waited for it
	// Whom is the rank for which it waited most, in WhomShare percent of the last second; -1: for nobody.
	Whom      int     `json:"whom"`
	WhomShare uint8   `json:"whomshare"`
	Pending   uint64  `json:"pending"`
	Memory    uint64  `json:"memory"`
	Cores     float64 `json:"cores"`
	Starved   float64 `json:"starved"` // share of the time in which its main thread waited for a core
	Silent    float64 `json:"silent"`  // seconds since it has told something; -1: never
}

// Straggler is a rank that slows the others down.
type Straggler struct {
	Rank  int            `json:"rank"`
	Kind  straggler.Kind `json:"kind,omitempty"` // left out until it is known
	Share float64        `json:"share"`          // of the time of the others that is lost; 1 while they are stuck
}

// Kind is a sort of collectives.
type Kind struct {
	Op    string  `json:"op"`
	Class string  `json:"class"`
	Count uint64  `json:"count"` // since the start, of all ranks
	Bytes uint64  `json:"bytes"`
	Mean  float64 `json:"mean"` // seconds
	// Bus is Bytes times the factor of the bus bandwidth, and Seconds the time of all ranks in them.
	Bus     uint64  `json:"bus"`
	Seconds float64 `json:"seconds"`
}

// snapshot looks at the job. The caller holds mu.
func (j *Job) snapshot(now time.Time) *Snapshot {
	s := &Snapshot{Time: now.UnixMilli(), Version: programVersion, World: j.worlds, Size: j.size, Hosts: []string{},
		Ranks: make([]Rank, len(j.ranks)), Kinds: []Kind{}, History: []Event{}}
	if j.joined != nil {
		s.Joined = j.joined()
	}
	j.gather(now)
	groups := j.groups(now)
	j.sample(now, groups)
	s.Open = j.openOf(groups)
	hosts := map[string]int{}
	c := column{Time: s.Time, Waiting: make([]byte, len(j.ranks)), Late: make([]byte, len(j.ranks))}
	for i := range j.ranks {
		r := &j.ranks[i]
		s.Ranks[i] = j.shown(r, now)
		c.Waiting[i], c.Late[i] = r.waiting, r.late
		if r.last == nil {
			continue
		}
		at, known := hosts[r.host]
		if !known {
			at = len(s.Hosts)
			hosts[r.host] = at
			s.Hosts = append(s.Hosts, r.host)
		}
		s.Ranks[i].Host = at
		if j.fresh(r, now) {
			s.Telling++
		}
	}
	j.rates(s)
	j.steps(s)
	s.Links = j.links()
	c.Step = s.Step
	j.past.add(c)
	s.Column = c
	s.Kinds = j.kinds()
	s.Tables = j.tables()
	j.blamed = nil
	s.Sentence, s.Tone = j.sentence(now, s, groups)
	s.Sentence = printable.Text(s.Sentence) // programs print it, and names can be anything
	s.Where = j.where(now, j.blamed)
	s.History = append(s.History, j.history...)
	return s
}

// silence is the least age of the last answer of a rank that does not answer.
const silence = 4 * time.Second

// fresh reports whether r has told something of late, in an answer to a question of this watch.
func (j *Job) fresh(r *rank, now time.Time) bool {
	return r.last != nil && !r.told.Before(j.since) && now.Sub(r.told) < silence
}

// isSilent reports whether r has owed an answer for long.
func (j *Job) isSilent(r *rank, now time.Time) bool {
	from := r.told
	if from.Before(j.since) {
		from = j.since
	}
	return now.Sub(from) >= silence
}

// shown is the rank for a Snapshot, without its host.
func (j *Job) shown(r *rank, now time.Time) Rank {
	if r.last == nil || r.told.Before(j.since) && !j.isSilent(r, now) {
		return Rank{Host: -1, Silent: -1, Whom: -1}
	}
	d := r.recent(window)
	return Rank{Host: -1, Waiting: r.waiting, Late: r.late, Whom: r.whom, WhomShare: r.whomShare,
		Pending: r.last.Pending, Memory: r.last.Resident,
		Cores: d.cores, Starved: d.starved, Silent: max(0, now.Sub(r.told).Seconds())}
}

// sample notes what the ranks have counted, and how they have spent the time since the last tick. The caller holds mu.
func (j *Job) sample(now time.Time, groups []*group) {
	stuck := map[int]time.Duration{} // for how long others wait for a rank
	whom := map[int]int{}            // for whom a rank waits now
	for _, g := range groups {
		if !g.isJoin() {
			for _, m := range g.missing {
				stuck[m] = max(stuck[m], g.last.Sub(g.start))
			}
			for _, w := range g.waiters {
				if _, known := whom[w]; !known && len(g.missing) > 0 { // the oldest operation counts
					whom[w] = g.missing[0]
				}
			}
		}
	}
	pairs := false
	for i := range j.ranks {
		r := &j.ranks[i]
		r.waiting, r.late, r.whom, r.whomShare = 0, 0, -1, 0
		if r.last != nil && r.told.Before(j.since) {
			continue // what it has told is of the time before anybody looked
		}
		x := sample{at: now, told: r.told, charged: r.charged}
		if f := r.last; f != nil {
			x.waited, x.cpu, x.main, x.link = f.Waited, f.CPU, f.Main, f.Link
			x.traffic = f.Traffic
			x.steps, x.stepTime, x.samples = f.Steps.Count(), f.Steps.Sum, f.Samples
			for k := range f.Works {
				x.works += f.Works[k].Times.Count()
				x.bytes += f.Works[k].Bytes
				x.busy += f.Works[k].Times.Sum
			}
		}
		if n := len(r.samples); n > 0 {
			before := &r.samples[n-1]
			pairs = true
			dt := max(Every, now.Sub(before.at))
			if !before.told.IsZero() {
				r.waiting = percent(time.Duration(more(before.waited, x.waited)), max(dt, x.told.Sub(before.told)))
			}
			late := time.Duration(more(before.charged, x.charged)) / time.Duration(max(1, len(j.ranks)-1))
			r.late = percent(late+min(dt, stuck[i]), dt)
			r.waitsFor(dt)
			if late, ok := whom[i]; ok {
				r.whom, r.whomShare = late, max(r.waiting, percent(min(dt, stuck[late]), dt))
			}
		}
		r.waits = nil
		r.samples = append(r.samples, x)
		r.samples = r.samples[max(0, len(r.samples)-window):]
	}
	if pairs {
		j.windows = append(j.windows, j.window())
		j.windows = j.windows[max(0, len(j.windows)-straggler.MostWindows):]
	}
}

// waitsFor finds for whom the rank has waited most in the time dt.
func (r *rank) waitsFor(dt time.Duration) {
	most := uint64(0)
	for late, ns := range r.waits {
		if ns > most || ns == most && late < r.whom {
			most, r.whom = ns, late
		}
	}
	if r.whomShare = percent(time.Duration(most), dt); r.whomShare == 0 {
		r.whom = -1
	}
}

func percent(part, of time.Duration) uint8 { return uint8(min(100, 100*max(0, part)/max(1, of))) }

func more(before, now uint64) uint64 { return max(now, before) - before }

// recent describes a rank's work in the last samples.
type recent struct {
	seconds        float64 // 0: unknown
	works, bytes   float64 // a second
	waiting, busy  float64 // shares of the time
	steps          uint64  // that have ended
	stepTime       uint64  // nanoseconds that these took
	samples        float64 // a second
	late           float64 // nanoseconds that the others have waited for it, a second
	cores, starved float64
	share          straggler.Share // without Late
}

func (r *rank) recent(samples int) (d recent) {
	if len(r.samples) < 2 {
		return d
	}
	a, b := &r.samples[max(0, len(r.samples)-samples)], &r.samples[len(r.samples)-1]
	d.late = float64(more(a.charged, b.charged)) / max(1e-3, b.at.Sub(a.at).Seconds())
	dt := b.told.Sub(a.told).Seconds()
	if a.told.IsZero() || dt <= 0 {
		return d
	}
	share := func(before, now uint64) float64 { return float64(more(before, now)) / 1e9 / dt }
	d.seconds = dt
	d.works, d.bytes = float64(more(a.works, b.works))/dt, float64(more(a.bytes, b.bytes))/dt
	d.steps, d.stepTime = more(a.steps, b.steps), more(a.stepTime, b.stepTime)
	d.samples = float64(more(a.samples, b.samples)) / dt
	d.waiting, d.busy = min(1, share(a.waited, b.waited)), min(1, share(a.busy, b.busy))
	d.cores, d.starved = share(a.cpu, b.cpu), min(1, share(a.main.Starved, b.main.Starved))
	d.share = straggler.Share{Waiting: d.waiting, Busy: d.busy, Known: b.main.Running > 0,
		Running: min(1, share(a.main.Running, b.main.Running)), Starved: d.starved,
		Link: min(1, share(a.link.Busy, b.link.Busy)), Sent: float64(more(a.link.Bytes, b.link.Bytes)) / dt}
	if looks := more(a.main.Looks, b.main.Looks); looks > 0 {
		of := func(before, now uint64) float64 { return float64(more(before, now)) / float64(looks) }
		d.share.Looked = true
		d.share.Asleep, d.share.Reading = of(a.main.Asleep, b.main.Asleep), of(a.main.Reading, b.main.Reading)
		d.share.Locked = of(a.main.Locked, b.main.Locked)
	}
	return d
}

// window describes the ranks' work between the last two samples. A rank that has told nothing in between is said to
// have done nothing, but it can be late.
func (j *Job) window() straggler.Window {
	w := make(straggler.Window, len(j.ranks))
	for i := range j.ranks {
		d := j.ranks[i].recent(2)
		w[i] = d.share
		w[i].Late = d.late / 1e9 / float64(max(1, len(j.ranks)-1))
	}
	return w
}

// rates fills in the averages over all ranks.
func (j *Job) rates(s *Snapshot) {
	n := 0.0
	for i := range j.ranks {
		if d := j.ranks[i].recent(window); d.seconds > 0 {
			n++
			s.Collectives += d.works
			s.Bytes += d.bytes
			s.Waiting += d.waiting
			s.Communicating += d.busy
		}
	}
	if n > 0 {
		s.Collectives, s.Bytes, s.Waiting, s.Communicating = s.Collectives/n, s.Bytes/n, s.Waiting/n, s.Communicating/n
	}
}

// steps fills in the time and the number of the program's steps. The time of a step that is longer than the last
// samples stays known.
func (j *Job) steps(s *Snapshot) {
	var count, sum, all, allSum uint64
	for i := range j.ranks {
		r := &j.ranks[i]
		if r.last == nil {
			continue
		}
		n := r.last.Steps.Count()
		all, allSum, s.Steps = all+n, allSum+r.last.Steps.Sum, max(s.Steps, n)
		d := r.recent(window)
		count, sum = count+d.steps, sum+d.stepTime
		s.Samples += d.samples
	}
	switch {
	case count > 0:
		j.step = feed.Seconds(sum) / float64(count)
	case j.step == 0 && all > 0:
		j.step = feed.Seconds(allSum) / float64(all)
	}
	s.Step = j.step
}

// kinds adds up the collectives of all ranks, those with the most bytes first.
func (j *Job) kinds() []Kind {
	type key struct {
		op    string
		class feed.Class
	}
	all := map[key]*feed.Work{}
	for i := range j.ranks {
		if j.ranks[i].last == nil {
			continue
		}
		for k := range j.ranks[i].last.Works {
			w := &j.ranks[i].last.Works[k]
			id := key{w.OpName(), w.Class}
			sum := all[id]
			if sum == nil {
				sum = &feed.Work{}
				all[id] = sum
			}
			sum.Bytes += w.Bytes
			sum.Bus += w.Bus
			sum.Times.Add(&w.Times)
		}
	}
	kinds := []Kind{}
	for id, w := range all {
		n := w.Times.Count()
		all := feed.Seconds(w.Times.Sum)
		kinds = append(kinds, Kind{id.op, id.class.String(), n, w.Bytes, all / float64(max(1, n)), w.Bus, all})
	}
	slices.SortFunc(kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Class, b.Class))
	})
	return kinds
}
