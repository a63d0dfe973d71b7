// Package summary says at the end of a job where its time went, and what to try. The launcher hands it the ranks'
// figures, which it asks for now and then: see Run. docs/dashboard.md defines all figures. The engine and package hvd
// never import it.
package summary

import (
	"fmt"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/feed"
)

// Variable says whether there is a summary.
const Variable = "GOROVOD_SUMMARY"

// Auto is how long a job has to run for a summary that nobody has asked for.
const Auto = 30 * time.Second

// From is what the value of Variable asks for: least is how long a job must run, on that there is a summary at all.
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

// Ledger adds up what the ranks tell. Its methods are safe on any goroutine.
type Ledger struct {
	mu    sync.Mutex
	ask   func()
	world *world // the present one; nil before Form
	best  *world // the earlier one that was longest; nil for none
}

// world is one world of an elastic job; another job has one.
type world struct {
	from   uint64 // the first generation
	formed time.Time
	ranks  []rank
	rounds int // in which ranks have waited
	last   time.Time
}

// rank is what one rank has told.
type rank struct {
	generation uint64
	host       string
	told       time.Time     // zero: never
	last       *feed.Figures // of generation

	seconds                    float64 // that the sums are of
	waited, busy, cpu, starved uint64  // nanoseconds
	running                    uint64
	looks                      uint64 // at the main thread; the next ones are parts of them
	asleep, reading, locked    uint64
	works, bytes               uint64
	kinds                      map[kind]*feed.Work

	charged uint64 // nanoseconds that the others have waited for it
	before  uint64 // charged at the end of the last round
	won     int    // rounds in which the others waited for it most
}

type kind struct {
	op    string
	class feed.Class
}

// Form begins a world of size ranks, whose generations are from or later. ask asks all for their figures, and must not
// block.
func (l *Ledger) Form(size int, from uint64, ask func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.best = l.longest()
	l.ask, l.world = ask, &world{from: from, formed: time.Now(), ranks: make([]rank, size)}
}

// Take takes what a rank has told: see rendezvous.Server.Figures.
func (l *Ledger) Take(number int, generation uint64, host string, value []byte) {
	f, err := feed.Decode(value)
	if err != nil {
		return // the rank has none yet
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.world != nil {
		l.world.take(time.Now(), number, generation, host, f)
	}
}

// take adds what is new since the rank's last answer. The first one of a generation is where its sums begin, so that
// the start of the program is not in them.
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

// add adds what a rank has done between two answers.
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
		sum.Times.Counts[0] += count // only the number of all counts here
		sum.Bytes += more(b.Bytes, n.Bytes)
		r.busy, r.works, r.bytes = r.busy+took, r.works+count, r.bytes+more(b.Bytes, n.Bytes)
	}
}

func more(before, now uint64) uint64 { return max(before, now) - before }

// round ends a round: it notes for which rank the others have waited most since the last one.
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

// seconds is how long the ranks' sums are, on average.
func (w *world) seconds() (s float64) {
	for i := range w.ranks {
		s += w.ranks[i].seconds
	}
	return s / float64(max(1, len(w.ranks)))
}

// longest is the world with the most to tell. The caller holds mu.
func (l *Ledger) longest() *world {
	if w := l.world; w != nil && len(w.ranks) > 1 && (l.best == nil || w.seconds() >= l.best.seconds()) {
		return w
	}
	return l.best
}

// The time between two rounds: a tenth of the world's age, within these bounds, and longer with very many ranks.
const (
	leastRound = time.Second
	mostRound  = 10 * time.Second
	perRank    = time.Millisecond
)

// Run asks the ranks until over is closed: at first each second, later each ten seconds.
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
