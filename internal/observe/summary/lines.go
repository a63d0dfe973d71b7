package summary

import (
	"fmt"
	"math"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/overview"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

const (
	// sigmas is how many standard deviations more often than by chance a rank must be the last one to be named.
	sigmas = 4
	// crowded is the share of the time without a core for main threads from which on the advice is about cores.
	crowded = 0.1
)

// shares say where the time of a rank went, or of all ranks on average.
type shares struct {
	computing, waiting, communicating float64
	cores, starved                    float64
}

func (r *rank) shares() (s shares) {
	if r.seconds <= 0 {
		return s
	}
	of := func(ns uint64) float64 { return feed.Seconds(ns) / r.seconds }
	s.waiting = min(1, of(r.waited))
	s.communicating = min(1-s.waiting, of(r.busy))
	s.computing = 1 - s.waiting - s.communicating
	s.cores, s.starved = of(r.cpu), min(1, of(r.starved))
	return s
}

// average is the average over all ranks except one; with -1, over all.
func (w *world) average(without int) (a shares) {
	n := 0.0
	for i := range w.ranks {
		if i == without || w.ranks[i].seconds <= 0 {
			continue
		}
		s := w.ranks[i].shares()
		n++
		a.computing += s.computing
		a.waiting += s.waiting
		a.communicating += s.communicating
		a.cores += s.cores
		a.starved += s.starved
	}
	n = max(1, n)
	return shares{a.computing / n, a.waiting / n, a.communicating / n, a.cores / n, a.starved / n}
}

// Text is the summary, of five lines; "" if the figures cover less than least, or the ranks have not worked together.
func (l *Ledger) Text(least time.Duration) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.longest()
	if w == nil || len(w.ranks) < 2 {
		return ""
	}
	length := time.Duration(w.seconds() * float64(time.Second))
	works := uint64(0)
	for i := range w.ranks {
		works += w.ranks[i].works
	}
	if length <= 0 || length < least || works == 0 {
		return ""
	}
	a := w.average(-1)
	worst := w.standsOut()
	rest := 1 - (math.Round(100*a.waiting)+math.Round(100*a.communicating))/100 // the rest, so that the sum is 100 %
	return fmt.Sprintf("where the time of %d ranks went in %v (%s=0 hides this):\n  computing %s, waiting for other "+
		"ranks %s, communicating %s, on average over the ranks\n  slowest: %s\n  collectives: %s\n  to try: %s",
		len(w.ranks), length.Round(time.Second), Variable, percent(rest), percent(a.waiting),
		percent(a.communicating), w.slowest(worst), w.collectives(), w.advice(worst, a))
}

// late is the share of the time in which the other ranks have waited for rank i, on average.
func (w *world) late(i int) float64 {
	return feed.Seconds(w.ranks[i].charged) / float64(len(w.ranks)-1) / max(1e-9, w.seconds())
}

// standsOut is the rank for which the others waited, by the rule of the live page; else -1. It must have been the last
// one more often than by chance, which makes another rank the last one each time.
func (w *world) standsOut() int {
	all := make(straggler.Window, len(w.ranks))
	for i := range w.ranks {
		all[i] = straggler.Share{Late: w.late(i), Starved: w.ranks[i].shares().starved}
	}
	worst, ok := all.Latest(straggler.Least)
	rounds, chance := float64(w.rounds), 1/float64(len(w.ranks))
	byChance := rounds*chance + sigmas*math.Sqrt(rounds*chance*(1-chance))
	if !ok || float64(w.ranks[worst].won) < byChance {
		return -1
	}
	return worst
}

// slowest is the line about the rank that stands out.
func (w *world) slowest(worst int) string {
	if worst < 0 {
		return "no rank stands out: none of them is the last one again and again"
	}
	all := uint64(0)
	for i := range w.ranks {
		all += w.ranks[i].charged
	}
	r := &w.ranks[worst]
	each := time.Duration(r.charged) / time.Duration(len(w.ranks)-1)
	return fmt.Sprintf("%s; the others waited for it %s each, %s of the time and %s of all waiting", w.named(worst),
		each.Round(time.Second/10), percent(w.late(worst)), percent(float64(r.charged)/float64(max(1, all))))
}

func (w *world) named(i int) string {
	if host := w.ranks[i].host; host != "" {
		return fmt.Sprintf("rank %d on %s", i, host)
	}
	return fmt.Sprintf("rank %d", i)
}

// collectives is the line about the data that collectives move, and the kind that takes most time.
func (w *world) collectives() string {
	var works, bytes, seconds float64
	sums := map[kind]*feed.Work{}
	var top kind
	for i := range w.ranks {
		r := &w.ranks[i]
		works, bytes, seconds = works+float64(r.works), bytes+float64(r.bytes), seconds+r.seconds
		for k, v := range r.kinds {
			if sums[k] == nil {
				sums[k] = &feed.Work{}
			}
			sums[k].Bytes += v.Bytes
			sums[k].Times.Add(&v.Times)
		}
	}
	for k, v := range sums {
		if best := sums[top]; best == nil || v.Times.Sum > best.Times.Sum ||
			v.Times.Sum == best.Times.Sum && k.op < top.op {
			top = k
		}
	}
	seconds = max(seconds, 1e-9)
	text := fmt.Sprintf("%s a second on each rank, with %s/s", short(works/seconds), overview.Bytes(bytes/seconds))
	best := sums[top]
	if best == nil || best.Times.Count() == 0 {
		return text
	}
	size := "up to " + top.class.String()
	if top.class == feed.NumClasses-1 {
		size = "of more than 1GiB"
	}
	mean := time.Duration(best.Times.Sum / best.Times.Count())
	return text + fmt.Sprintf("; most of their time in %s %s, %v each", top.op, size, round(mean))
}

// advice says what to try, with the figure that supports it. a is the average over all ranks.
func (w *world) advice(worst int, a shares) string {
	if worst >= 0 {
		return w.help(worst)
	}
	size := 0.0 // bytes of one collective
	if r := &w.ranks[0]; r.works > 0 {
		size = float64(r.bytes) / float64(r.works)
	}
	switch {
	case a.starved >= crowded:
		return fmt.Sprintf("fewer ranks on a host, or fewer threads: main threads could run, but had no core, in "+
			"%s of the time", percent(a.starved))
	case a.waiting >= 0.1 && a.waiting >= a.communicating:
		return fmt.Sprintf("even work for all ranks: they waited for one another in %s of the time, each for others",
			percent(a.waiting))
	case a.communicating >= 0.2 && size < 64<<10:
		return fmt.Sprintf("fewer and larger tensors, or gradients of several batches at once "+
			"(backward_passes_per_step): a collective has %s on average, and they take %s of the time",
			overview.Bytes(size), percent(a.communicating))
	case a.communicating >= 0.2:
		return fmt.Sprintf("compression (hvd.Compression.fp16), or gradients of several batches at once "+
			"(backward_passes_per_step): collectives take %s of the time", percent(a.communicating))
	}
	return fmt.Sprintf("nothing here: the ranks computed in %s of the time", percent(a.computing))
}

// help is the advice for a rank that stands out.
func (w *world) help(worst int) string {
	r, others := w.ranks[worst].shares(), w.average(worst)
	switch w.ranks[worst].does() {
	case straggler.Sleeps:
		return fmt.Sprintf("look at what rank %d sleeps for: its main thread sleeps in %s of the time", worst,
			percent(w.ranks[worst].part(w.ranks[worst].asleep)))
	case straggler.Reads:
		return fmt.Sprintf("look at the data loader and the storage of rank %d: its main thread waits for data in %s "+
			"of the time", worst, percent(w.ranks[worst].part(w.ranks[worst].reading)))
	case straggler.Locked:
		return fmt.Sprintf("look at the locks and the data loader's threads of rank %d: its main thread waits for "+
			"another thread in %s of the time", worst, percent(w.ranks[worst].part(w.ranks[worst].locked)))
	case straggler.Blocked:
		return fmt.Sprintf("look at the data loader and the storage of rank %d: it was busy elsewhere in %s of the "+
			"time, and used %.2f cores, so it slept, or waited for data or a lock", worst, percent(r.computing),
			r.cores)
	case straggler.Starves:
		if r.starved >= 2*others.starved {
			return fmt.Sprintf("a core of its own for rank %d: its main thread could run, but had no core, in %s of "+
				"the time, those of the others in %s", worst, percent(r.starved), percent(others.starved))
		}
	}
	return fmt.Sprintf("less work or a faster processor for rank %d: it computed in %s of the time, the others in %s",
		worst, percent(r.computing), percent(others.computing))
}

// does says what a straggler does instead of being in time.
func (r *rank) does() straggler.Kind {
	s := r.shares()
	if s.computing > 0 && s.starved > s.computing/2 {
		return straggler.Starves
	}
	share := straggler.Share{Waiting: s.waiting, Busy: s.communicating, Starved: s.starved, Looked: r.looks > 0,
		Asleep: r.part(r.asleep), Reading: r.part(r.reading),
		Locked: max(0, r.part(r.locked)-s.waiting-s.communicating)}
	if k := share.Mostly(); k != straggler.Computes || r.cpu == 0 || s.cores >= 0.3*s.computing {
		return k
	}
	return straggler.Blocked
}

// part is the share of the looks at a rank's main thread that n counts.
func (r *rank) part(n uint64) float64 { return float64(n) / float64(max(1, r.looks)) }

func percent(share float64) string { return fmt.Sprintf("%.0f %%", math.Round(100*share)) }

// short writes a number with three digits.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// round rounds a duration to about three digits.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Nanosecond)
}
