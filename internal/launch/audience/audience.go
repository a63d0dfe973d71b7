// Package audience shows a job while it runs, to people and to programs: as a page, as metrics, to gorovod top, as
// traces, and as a summary at its end.
//
// An Audience follows one world of ranks after another. It is the Audience of package job, which does not know this
// package. It only looks: it must not decide anything, and none of its methods blocks, except End and Close.
package audience

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/observe/dashboard"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/metrics"
	"github.com/gorovod/gorovod/internal/observe/otlp"
	"github.com/gorovod/gorovod/internal/observe/overview"
	"github.com/gorovod/gorovod/internal/observe/summary"
)

// Audience is who watches a job: readers of its metrics, of its dashboard, of gorovod top, and of the summary at its
// end, and a collector of its traces. For the summary, the launcher asks the ranks once in ten seconds.
type Audience struct {
	metrics  *metrics.Server   // nil: not shown
	page     *dashboard.Server // nil: not shown
	local    *dashboard.Server // for gorovod top; nil where the system has no such sockets
	Overview *overview.Job
	traces   *otlp.Job       // nil: nobody collects them
	ledger   *summary.Ledger // nil: the job ends without a summary
	least    time.Duration   // a shorter job ends without a summary
	over     chan struct{}
	running  sync.WaitGroup
}

// Open opens what the user asks for, and the socket for gorovod top, and begins the summary. program is what the ranks
// run. say and ranks are those of OpenReaders. warn is called, on any goroutine, if the collector does not take the
// traces.
func Open(f *flags.Flags, program string, ranks int, say, warn func(text string)) (*Audience, error) {
	least, on, err := summary.From(f.Lookup(summary.Variable))
	if err != nil {
		return nil, err
	}
	a, err := OpenReaders(f, say, ranks)
	if err != nil {
		return nil, err
	}
	if on {
		a.ledger, a.least = &summary.Ledger{}, least
		a.running.Go(func() { a.ledger.Run(a.over) })
	}
	if a.traces, err = openTraces(f, program, warn); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Sayer tells the user a text as the program name does.
func Sayer(name string) func(text string) {
	return func(text string) { logging.Print(slog.LevelInfo, name, text) }
}

// OpenReaders is Open for jobs that end without a summary, and without traces. say tells the user where the pages are.
// ranks is about how many ranks this host has. If it is 0, they may run already or elsewhere, so how fast this host
// copies memory is not measured.
func OpenReaders(f *flags.Flags, say func(text string), ranks int) (*Audience, error) {
	a := &Audience{Overview: overview.New(), over: make(chan struct{})}
	a.running.Go(func() { a.Overview.Run(a.over) })
	if err := a.openMetrics(f, say); err != nil {
		a.Close()
		return nil, err
	}
	if err := a.openPage(f, say, ranks); err != nil {
		a.Close()
		return nil, err
	}
	a.local, _ = dashboard.OpenLocal(a.Overview) // a job does not need it
	return a, nil
}

func (a *Audience) openMetrics(f *flags.Flags, say func(text string)) error {
	address, said := f.Asked(f.MetricsPort, "--metrics-port", metrics.Variable)
	if address == "" {
		return nil
	}
	o, err := door.From(address, f.Lookup)
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	if a.metrics, err = metrics.Open(o); err != nil {
		return fmt.Errorf("%s %s: %w", said, address, err)
	}
	say("metrics are at " + a.metrics.URL())
	return nil
}

func (a *Audience) openPage(f *flags.Flags, say func(text string), ranks int) error {
	address, said := f.Asked(f.Dashboard, "--dashboard", dashboard.Variable)
	if address == "" {
		return nil
	}
	o, err := door.From(address, f.Lookup)
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	if a.page, err = dashboard.Open(o, a.Overview); err != nil {
		return fmt.Errorf("%s %s: %w", said, address, err)
	}
	if ranks > 0 {
		a.Overview.SetCopying(copyingRate(ranks), placement.ThisHost().Has)
	}
	a.Overview.Keep()
	say("the dashboard is at " + a.page.URL())
	return nil
}

// Follow shows the ranks that meet at s, a world of size ranks, from now on: see job.Audience.
func (a *Audience) Follow(s *rendezvous.Server, size int, cause membership.Cause, words string) {
	a.formedAnew(cause, words)
	from := s.Epoch << 20
	s.Figures = a.Take
	s.Failed = func(d rendezvous.Death) {
		a.Overview.Died(d.Rank, d.Host, d.How(), d.Reason)
		a.traces.Broke(from)
	}
	a.Begin(World{Size: size, From: from, Joined: func() int { return len(s.Joined()) },
		Inquiry: &Inquiry{Ask: s.AskFigures}, Inspect: s.Inspect})
}

// World is a world that an audience sees: see rendezvous.Server. No function blocks.
type World struct {
	Size    int
	From    uint64 // its first generation
	Joined  func() int
	Inquiry *Inquiry
	Inspect func(ranks []int)
}

// Begin shows a world from now on.
func (a *Audience) Begin(w World) {
	q := w.Inquiry
	if a.metrics != nil {
		a.metrics.Form(w.Size, w.From, w.Joined, q.unless(metricsAge))
	}
	a.Overview.Form(w.Size, w.From, w.Joined, q.unless(0))
	a.Overview.SetInspect(w.Inspect)
	if a.ledger != nil {
		a.ledger.Form(w.Size, w.From, q.unless(ledgerAge))
	}
	a.traces.Form(w.Size, w.From, w.Joined, q.unless(spansAge))
}

// Take takes a rank's figures: see rendezvous.Server.Figures.
func (a *Audience) Take(rank int, generation uint64, host string, value []byte) {
	if a.metrics != nil {
		a.metrics.Job().Take(rank, generation, host, value)
	}
	a.Overview.Take(rank, generation, host, value)
	if a.ledger != nil {
		a.ledger.Take(rank, generation, host, value)
	}
	a.traces.Take(rank, generation, host, value)
}

// formedAnew notes why the world that follows is formed; an empty cause is of the first one.
func (a *Audience) formedAnew(cause membership.Cause, words string) {
	if cause == "" {
		return
	}
	if a.metrics != nil {
		a.metrics.Job().Reset(cause)
	}
	because := map[membership.Cause]string{
		membership.ByFailure: "a worker has died or could not be reached",
		membership.ByApart:   "the workers could not join one another",
		membership.ByChange:  "slots have come, and others were taken away",
		membership.ByRemoval: "slots were taken away",
		membership.ByArrival: "workers have come",
		membership.ByError:   "an operation has failed",
	}[cause]
	if cause == membership.ByError && words != "" {
		because += ": " + words
	}
	a.Overview.Because(because)
}

// Inquiry asks the ranks of a world on behalf of several readers. All of them get each answer, and a rank answers only
// so often. So the overview, which looks each second, asks whenever it wants, and the others ask only if nobody has
// asked of late.
type Inquiry struct {
	Ask func()

	mu   sync.Mutex
	last time.Time
}

// An answer that is younger than this is as good as a new one. Each is somewhat less than the time between two
// questions.
const (
	metricsAge = 1500 * time.Millisecond
	ledgerAge  = 900 * time.Millisecond
	spansAge   = 900 * time.Millisecond
)

// unless returns a function that asks if nobody has asked within that time.
func (q *Inquiry) unless(within time.Duration) func() {
	return func() {
		now := time.Now()
		q.mu.Lock()
		fresh := now.Sub(q.last) < within
		if !fresh {
			q.last = now
		}
		q.mu.Unlock()
		if !fresh {
			q.Ask()
		}
	}
}

// SetLines sets the function that returns the last lines of a rank, or of a worker in an elastic job: see
// overview.Job.SetLines.
func (a *Audience) SetLines(f func(number int) (stdout, stderr string, ok bool)) {
	a.Overview.SetLines(f)
}

// Note shows a message of the launcher.
func (a *Audience) Note(text string) { a.Overview.Note(text) }

// Fail reports an error to the collector of the traces.
func (a *Audience) Fail(text string) { a.traces.Fail(text) }

// Summary says where the time of the job went; empty if the job was too short, or has no summary.
func (a *Audience) Summary() string {
	if a.ledger == nil {
		return ""
	}
	return a.ledger.Text(a.least)
}

// End tells the readers and the collector how the job has ended. It waits, for a bounded time, for the collector.
func (a *Audience) End(code int, why output.Report, err error) {
	e := overview.Ending{Code: code, Text: why.Text}
	if err != nil {
		e.Text = err.Error()
	}
	a.Overview.End(e)
	a.traces.End(code)
}

// Close ends the pages.
func (a *Audience) Close() {
	close(a.over)
	if a.metrics != nil {
		a.metrics.Close()
	}
	for _, s := range []*dashboard.Server{a.page, a.local} {
		if s != nil {
			s.Close()
		}
	}
	a.running.Wait()
}
