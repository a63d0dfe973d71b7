// Package summary says at the end of a job where its time went, and what to try. The launcher asks the ranks for
// figures now and then (see Run), and passes them on. docs/dashboard.md defines all figures. The engine and package hvd
// never import this package.
package summary

import (
	"fmt"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Variable says whether there is a summary.
const Variable = "GOROVOD_SUMMARY"

// Auto is how long a job must run to get a summary that the user has not asked for.
const Auto = 30 * time.Second

// From reads the value of Variable. least is how long a job must run to get a summary; on: there are summaries at all.
func From(value string) (least time.Duration, on bool, err error) {
	switch value {
	case "":
		return Auto, true, nil
	case "0":
		return 0, false, nil
	case "1":
		return 0, true, nil
	}
	return 0, false, fmt.Errorf("%s=%q: 0 for no summary at the end of a job, 1 for one of short jobs, too, or nothing",
		Variable, value)
}

// Ledger adds up the ranks' figures. Its methods are safe on any goroutine.
type Ledger struct {
	mu    sync.Mutex
	ask   func()
	world *world // the present one; nil before Form
	best  *world // the longest earlier world; nil for none
}

// world is one world of an elastic job; other jobs have only one.
type world struct {
	from   uint64 // the first generation
	formed time.Time
	ranks  []rank
	rounds int // rounds in which ranks have waited
	last   time.Time
}

// rank is the figures of one rank.
type rank struct {
	generation uint64
	host       string
	told       time.Time     // zero: never
	last       *feed.Figures // the last figures of generation

	seconds                    float64 // how many seconds the sums cover
	waited, busy, cpu, starved uint64  // nanoseconds
	running                    uint64
	looks                      uint64 // looks at the main thread; the next fields count parts of them
	asleep, reading, locked    uint64
	works, bytes               uint64
	kinds                      map[kind]*feed.Work

	charged uint64 // nanoseconds that the other ranks have waited for it
	before  uint64 // charged, at the end of the last round
	won     int    // rounds in which the other ranks waited for it most
}

type kind struct {
	op    string
	class feed.Class
}

// Form begins a world of size ranks, whose generations are from or later. ask asks all ranks for their figures, and
// must not block.
func (l *Ledger) Form(size int, from uint64, ask func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.best = l.longest()
	l.ask, l.world = ask, &world{from: from, formed: time.Now(), ranks: make([]rank, size)}
}

// Take takes a rank's figures: see rendezvous.Server.Figures.
func (l *Ledger) Take(number int, generation uint64, host string, value []byte) {
	f, err := feed.Decode(value)
	if err != nil {
		return // the rank has no figures yet
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.world != nil {
		l.world.take(time.Now(), number, generation, host, f)
	}
}

// take adds the growth since the rank's last answer. The sums begin with the first answer of a generation, so they do
// not include the start of the program.
func (w *world) take(now time.Time, number int, generation uint64, host string, f *feed.Figures) {
	if generation < w.from || number < 0 || number >= len(w.ranks) || generation < w.ranks[number].generation {
		return
	}
	r := &w.ranks[number]
	begins := r.last == nil || generation > r.generation
	if !begins {
		f.Complete(r.last)
		r.add(now.Sub(r.told).Seconds(), r.last, f)
		for _, late := range f.WaitedFor {
			if late.Rank < len(w.ranks) {
				w.ranks[late.Rank].charged += late.Nanoseconds
			}
		}
	}
	r.generation, r.host, r.told, r.last = generation, host, now, f
}

// add adds a rank's work between two answers.
func (r *rank) add(seconds float64, before, now *feed.Figures) {
	r.seconds += seconds
	r.waited += more(before.Waited, now.Waited)
	r.cpu += more(before.CPU, now.CPU)
	r.starved += more(before.Main.Starved, now.Main.Starved)
	r.running += more(before.Main.Running, now.Main.Running)
	r.looks += more(before.Main.Looks, now.Main.Looks)
	r.asleep += more(before.Main.Asleep, now.Main.Asleep)
	r.reading += more(before.Main.Reading, now.Main.Reading)
	r.locked += more(before.Main.Locked, now.Main.Locked)
	then := map[kind]*feed.Work{}
	for i := range before.Works {
		b := &before.Works[i]
		then[kind{b.OpName(), b.Class}] = b
	}
	if r.kinds == nil {
		r.kinds = map[kind]*feed.Work{}
	}
	for i := range now.Works {
		n := &now.Works[i]
		k := kind{n.OpName(), n.Class}
		b := then[k]
		if b == nil {
			b = &feed.Work{}
		}
		sum := r.kinds[k]
		if sum == nil {
			sum = &feed.Work{}
			r.kinds[k] = sum
		}
		took, count := more(b.Times.Sum, n.Times.Sum), more(b.Times.Count(), n.Times.Count())
		sum.Times.Sum += took
		sum.Times.Counts[0] += count // only the total number of all counts is needed here
		sum.Bytes += more(b.Bytes, n.Bytes)
		r.busy, r.works, r.bytes = r.busy+took, r.works+count, r.bytes+more(b.Bytes, n.Bytes)
	}
}

func more(before, now uint64) uint64 { return max(before, now) - before }

// round ends a round: it notes the rank for which the others have waited most since the last round.
func (w *world) round() {
	worst, most := -1, uint64(0)
	for i := range w.ranks {
		r := &w.ranks[i]
		if d := r.charged - r.before; d > most {
			worst, most = i, d
		}
		r.before = r.charged
	}
	if worst >= 0 {
		w.rounds++
		w.ranks[worst].won++
	}
}

// seconds is how many seconds the ranks' sums cover, on average.
func (w *world) seconds() (s float64) {
	for i := range w.ranks {
		s += w.ranks[i].seconds
	}
	return s / float64(max(1, len(w.ranks)))
}

// longest is the world with the longest sums. The caller holds mu.
func (l *Ledger) longest() *world {
	if w := l.world; w != nil && len(w.ranks) > 1 && (l.best == nil || w.seconds() >= l.best.seconds()) {
		return w
	}
	return l.best
}

// The time between two rounds is a tenth of the world's age, within these limits, and longer with very many ranks.
const (
	leastRound = time.Second
	mostRound  = 10 * time.Second
	perRank    = time.Millisecond
)

// Run asks the ranks until over is closed: at first every second, later every ten seconds.
func (l *Ledger) Run(over <-chan struct{}) {
	tick := time.NewTicker(leastRound)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.tick(now)
		case <-over:
			return
		}
	}
}

func (l *Ledger) tick(now time.Time) {
	l.mu.Lock()
	var ask func()
	if w := l.world; w != nil && len(w.ranks) > 1 {
		age := now.Sub(w.formed)
		every := max(min(age/10, mostRound), leastRound, time.Duration(len(w.ranks))*perRank)
		if now.Sub(w.last) >= every-leastRound/2 {
			w.last, ask = now, l.ask
			w.round()
		}
	}
	l.mu.Unlock()
	if ask != nil {
		ask()
	}
}
