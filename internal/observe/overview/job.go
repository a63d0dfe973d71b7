// Package overview follows a job from its launcher: what each rank does, who waits for whom, and why. Package
// rendezvous brings the ranks' figures, package dashboard shows the Snapshots. The package does no I/O, and asks the
// ranks only while somebody looks, or after Keep.
package overview

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

// Every is the time between two Snapshots.
const Every = time.Second

// Job has the launcher's knowledge of a job. Its methods are safe on any goroutine.
type Job struct {
	mu       sync.Mutex
	size     int       // of the present world
	worlds   int       // that there have been
	from     uint64    // the first generation of the present world
	formed   time.Time // when its forming began: the job's start, or the death of a rank of the world before
	whole    bool      // all ranks of the world have joined
	because  string    // why the next world is formed
	joined   func() int
	ask      func()
	inspect  func(ranks []int) // sets which ranks say where they are, too
	blamed   []int             // of which ranks the last sentence complains
	lines    func(number int) (stdout, stderr string, ok bool)
	ranks    []rank             // of the present world
	windows  []straggler.Window // one for each tick but the first, the last ones
	past     past
	history  []Event
	readers  int
	keep     bool
	last     []byte        // the newest Snapshot, as JSON
	private  []byte        // the same with what only some may see
	next     chan struct{} // closed with the next one
	looked   time.Time     // when it was made
	since    time.Time     // when somebody began to look: what ranks had told before says nothing of now
	waited   longWait
	death    *death  // the first of the present world
	step     float64 // seconds that a step took of late; 0: unknown
	ending   Ending
	identity Identity
	// here says whether a name is that of the launcher's host. copying is the bytes of memory a second that this host
	// can copy.
	here    func(host string) bool
	copying float64
}

// Ending says how a job has ended.
type Ending struct {
	Code int    `json:"code"` // of the launcher
	Text string `json:"text"` // why, if something failed
}

// rank is what one rank has told.
type rank struct {
	generation uint64
	host       string
	told       time.Time // zero: never
	last       *feed.Figures
	charged    uint64         // what the others have waited for it, in nanoseconds
	samples    []sample       // one for each tick, the last ones
	waiting    uint8          // percent of the time since the last tick
	late       uint8          // percent of that time in which the others waited for it
	waits      map[int]uint64 // nanoseconds since the last tick that it has waited for others
	whom       int            // for whom most, -1 for nobody
	whomShare  uint8          // percent of the time since the last tick
	stacks     []stackAt
	moved      time.Time // since when all stacks have been the same
}

// sample is what a rank had counted at a tick.
type sample struct {
	at, told                                 time.Time
	works, bytes, busy, waited, charged, cpu uint64
	steps, stepTime, samples                 uint64
	traffic                                  []feed.Traffic
	main                                     feed.Thread
	link                                     feed.Link
}

// window is the number of samples that describe the present.
const window = 6

// Event is something that happened to the job as a whole.
type Event struct {
	Time int64  `json:"time"` // milliseconds since 1970
	Text string `json:"text"`
}

// mostEvents and mostText bound the history.
const (
	mostEvents = 50
	mostText   = 400
)

// New returns a job without a world: see Form.
func New() *Job { return &Job{next: make(chan struct{}), formed: time.Now()} }

// Keep makes the job ask its ranks also while nobody looks, so that a reader who comes later sees the past.
func (j *Job) Keep() {
	j.mu.Lock()
	j.keep = true
	j.mu.Unlock()
}

// SetLines sets what returns the last lines of a rank's output, by its number, if there is such a rank. In an elastic
// job it is a worker's.
func (j *Job) SetLines(f func(number int) (stdout, stderr string, ok bool)) {
	j.mu.Lock()
	j.lines = f
	j.mu.Unlock()
}

// Lines are the last lines of a rank's output, if there is such a rank.
func (j *Job) Lines(number int) (stdout, stderr string, ok bool) {
	j.mu.Lock()
	f, size := j.lines, len(j.ranks)
	j.mu.Unlock()
	if f == nil {
		return "", "", number < size
	}
	return f(number)
}

// Form begins a world of size ranks, whose generations are from or later. joined returns the number of ranks that have
// joined. ask asks all ranks for their figures, and must not block. See SetInspect, too. The time of forming counts
// from New for the first world, and for a later one from the first death in the world before, if there was one.
func (j *Job) Form(size int, from uint64, joined func() int, ask func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.size, j.from, j.joined, j.ask, j.whole = size, from, joined, ask, false
	now := time.Now()
	switch {
	case j.death != nil:
		j.formed = j.death.at
	case j.worlds > 0:
		j.formed = now
	}
	j.inspect, j.blamed = nil, nil
	j.worlds++
	j.ranks, j.windows, j.waited, j.step = make([]rank, size), nil, longWait{}, 0
	j.death = nil
	j.past.begin(size)
	if j.worlds > 1 {
		text := fmt.Sprintf("the job is formed anew, with %d ranks", size)
		if j.because != "" {
			text += ", since " + j.because
		}
		j.note(now, text)
	}
	j.because = ""
}

// Because says why the next world is formed, for the history.
func (j *Job) Because(text string) {
	j.mu.Lock()
	j.because = text
	j.mu.Unlock()
}

// Note adds a text to the history.
func (j *Job) Note(text string) {
	j.mu.Lock()
	j.note(time.Now(), text)
	j.mu.Unlock()
}

// death is the end of a rank that has failed, or, with a cause, why the operations of all ranks have.
type death struct {
	rank              int
	host, how, report string
	cause             string
	generation        uint64 // whose operations have failed
	at                time.Time
}

// mostReport bounds the part of a rank's report that the sentence tells, in characters.
const mostReport = 200

// Died notes that a rank of the present world has failed, and how, such as "was killed by signal 9 (SIGKILL)". report
// is what it had reported before, or empty. The sentence tells the first death: the others fail by it.
func (j *Job) Died(number int, host, how, report string) {
	j.mu.Lock()
	if j.death == nil {
		j.death = &death{rank: number, host: host, how: how, report: brief(report), at: time.Now()}
	}
	j.mu.Unlock()
}

// Broke notes that the operations of all ranks have failed, and why, where nobody calls Died. The sentence tells that
// until a rank's program calls Init again, and so takes part in a later generation; the history keeps it.
func (j *Job) Broke(generation uint64, cause string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.death == nil || j.death.cause != "" && generation > j.death.generation {
		j.death = &death{cause: brief(cause), generation: generation, at: time.Now()}
		j.note(j.death.at, "the operations have failed: "+j.death.cause)
	}
}

// brief is the first line of a report, within mostReport.
func brief(report string) string {
	report, _, _ = strings.Cut(report, "\n")
	if r := []rune(report); len(r) > mostReport {
		report = string(r[:mostReport-1]) + "…"
	}
	return report
}

// said is the death in a sentence.
func (d *death) said(now time.Time) string {
	if d.cause != "" {
		return fmt.Sprintf("The operations have failed, %s ago: %s.", seconds(now.Sub(d.at)),
			strings.TrimSuffix(d.cause, "."))
	}
	text := fmt.Sprintf("Rank %d on %s %s, %s ago", d.rank, d.host, d.how, seconds(now.Sub(d.at)))
	if d.report != "" {
		text += "; it had reported: " + d.report
	}
	return text + "."
}

// note is Note with the lock held.
func (j *Job) note(at time.Time, text string) {
	text = printable.Text(text)
	if r := []rune(text); len(r) > mostText {
		text = string(r[:mostText-1]) + "…"
	}
	j.history = append(j.history, Event{at.UnixMilli(), text})
	j.history = j.history[max(0, len(j.history)-mostEvents):]
}

// Take takes what a rank has told: see rendezvous.Server.Figures. It drops figures that are damaged, or of an earlier
// world.
func (j *Job) Take(number int, generation uint64, host string, value []byte) {
	f, err := feed.Decode(value)
	if err != nil {
		return // the rank has none yet
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.take(time.Now(), number, generation, host, f)
}

// take is Take with the lock held.
func (j *Job) take(now time.Time, number int, generation uint64, host string, f *feed.Figures) {
	if generation < j.from || number < 0 || number >= len(j.ranks) || generation < j.ranks[number].generation {
		return
	}
	r := &j.ranks[number]
	if generation > r.generation { // its program has called Init again
		if j.death != nil && j.death.cause != "" && generation > j.death.generation {
			j.death = nil
		}
		*r = rank{generation: generation, charged: r.charged}
	}
	if r.last != nil {
		f.Complete(r.last)
	}
	if !r.told.Before(j.since) { // else it tells of the time before anybody looked
		for _, l := range f.WaitedFor {
			if l.Rank < len(j.ranks) {
				j.ranks[l.Rank].charged += l.Nanoseconds
				if r.waits == nil {
					r.waits = map[int]uint64{}
				}
				r.waits[l.Rank] += l.Nanoseconds
			}
		}
	}
	r.host, r.told, r.last = host, now, f
	r.stand(now, f.Stack)
}

// End notes how the job has ended, for its readers.
func (j *Job) End(e Ending) {
	e.Text = printable.Text(e.Text)
	j.mu.Lock()
	j.ending = e
	j.mu.Unlock()
}

// Ended is what End has noted.
func (j *Job) Ended() Ending {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ending
}

// Follow counts a reader, who calls leave at the end. It asks the ranks at once if nobody has looked of late.
func (j *Job) Follow() (leave func()) {
	var ask func()
	j.mu.Lock()
	if j.readers++; j.readers == 1 && !j.keep {
		j.last, j.private = nil, nil // of the time of another reader
		if now := time.Now(); now.Sub(j.looked) > silence {
			j.begin(now)
			ask = j.ask
		}
	}
	j.mu.Unlock()
	if ask != nil {
		ask()
	}
	return sync.OnceFunc(func() {
		j.mu.Lock()
		j.readers--
		j.mu.Unlock()
	})
}

// Last is the newest Snapshot as JSON, nil before the first, and a channel that is closed when there is a newer one.
// With private it has also the parts that are only for readers who may see a rank's output.
func (j *Job) Last(private bool) ([]byte, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if private {
		return j.private, j.next
	}
	return j.last, j.next
}

// Past is what the heat map shows so far, as JSON.
func (j *Job) Past() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, _ := json.Marshal(j.past.shown())
	return p
}

// Run makes a Snapshot every second in which somebody looks, until over is closed.
func (j *Job) Run(over <-chan struct{}) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			j.tick(now)
		case <-over:
			return
		}
	}
}

// tick makes a Snapshot, if somebody looks, and asks for the figures of the next one.
func (j *Job) tick(now time.Time) {
	j.mu.Lock()
	looks, ask, inspect := j.readers > 0 || j.keep, j.ask, j.inspect
	blamed := j.blamed
	j.gather(now)
	if looks {
		if now.Sub(j.looked) > silence {
			j.begin(now)
		}
		j.looked = now
		s := j.snapshot(now)
		j.private, _ = json.Marshal(s)
		j.last = j.private
		if s.Where != nil {
			s.Where = nil
			j.last, _ = json.Marshal(s)
		}
		close(j.next)
		j.next = make(chan struct{})
	} else {
		j.blamed = nil
	}
	if slices.Equal(blamed, j.blamed) {
		inspect = nil
	}
	blamed = j.blamed
	j.mu.Unlock()
	if inspect != nil {
		inspect(blamed)
	}
	if looks && ask != nil {
		ask()
	}
}

// begin begins to look, after a time in which nobody has. The caller holds mu.
func (j *Job) begin(now time.Time) {
	j.looked, j.since, j.windows, j.waited = now, now, nil, longWait{}
	for i := range j.ranks {
		j.ranks[i].samples = nil
	}
}

// gather notes in the history, once, that all ranks have joined. The caller holds mu.
func (j *Job) gather(now time.Time) {
	if !j.whole && j.size > 0 && j.joined != nil && j.joined() >= j.size {
		j.whole = true
		who := fmt.Sprintf("all %d ranks have", j.size)
		if j.size == 1 {
			who = "the only rank has"
		}
		j.note(now, fmt.Sprintf("%s joined, after %s", who, seconds(now.Sub(j.formed))))
	}
}
