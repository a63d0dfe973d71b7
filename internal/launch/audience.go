package launch

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/observe/dashboard"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/metrics"
	"github.com/gorovod/gorovod/internal/observe/otlp"
	"github.com/gorovod/gorovod/internal/observe/overview"
	"github.com/gorovod/gorovod/internal/observe/summary"
)

// audience is who watches a job: readers of its metrics, of its dashboard, of gorovod top, and of the summary at its
// end. For the summary, the launcher asks the ranks once in ten seconds. All methods do nothing on a nil audience.
type audience struct {
	metrics  *metrics.Server   // nil: not shown
	page     *dashboard.Server // nil: not shown
	local    *dashboard.Server // for gorovod top; nil where the system has no such sockets
	overview *overview.Job
	ledger   *summary.Ledger // nil: the job ends without a summary
	least    time.Duration   // a shorter job ends without a summary
	over     chan struct{}
	running  sync.WaitGroup
}

// openAudience opens what the user asks for, and the socket for gorovod top, and begins the summary. say and ranks are
// those of openReaders.
func openAudience(f *flags.Flags, say func(text string), ranks int) (*audience, error) {
	least, on, err := summary.From(f.Lookup(summary.Variable))
	if err != nil {
		return nil, err
	}
	a, err := openReaders(f, say, ranks)
	if err == nil && on {
		a.ledger, a.least = &summary.Ledger{}, least
		a.running.Go(func() { a.ledger.Run(a.over) })
	}
	return a, err
}

// sayer tells the user a text as the program name does.
func sayer(name string) func(text string) {
	return func(text string) { logging.Print(slog.LevelInfo, name, text) }
}

// openReaders is openAudience for jobs that end without a summary. say tells the user where the pages are. ranks is
// about how many ranks this host has. If it is 0, they may run already or elsewhere, so how fast this host copies
// memory is not measured.
func openReaders(f *flags.Flags, say func(text string), ranks int) (*audience, error) {
	a := &audience{overview: overview.New(), over: make(chan struct{})}
	a.running.Go(func() { a.overview.Run(a.over) })
	if err := a.openMetrics(f, say); err != nil {
		a.close()
		return nil, err
	}
	if err := a.openPage(f, say, ranks); err != nil {
		a.close()
		return nil, err
	}
	a.local, _ = dashboard.OpenLocal(a.overview) // a job does not need it
	return a, nil
}

func (a *audience) openMetrics(f *flags.Flags, say func(text string)) error {
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

func (a *audience) openPage(f *flags.Flags, say func(text string), ranks int) error {
	address, said := f.Asked(f.Dashboard, "--dashboard", dashboard.Variable)
	if address == "" {
		return nil
	}
	o, err := door.From(address, f.Lookup)
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	if a.page, err = dashboard.Open(o, a.overview); err != nil {
		return fmt.Errorf("%s %s: %w", said, address, err)
	}
	if ranks > 0 {
		a.overview.SetCopying(copyingRate(ranks), placement.ThisHost().Has)
	}
	a.overview.Keep()
	say("the dashboard is at " + a.page.URL())
	return nil
}

// form lets the audience see the ranks that meet at s, a world of size ranks, and ask them by q. It is called before s
// serves.
func (a *audience) form(s *rendezvous.Server, size int, q *inquiry) {
	if a == nil {
		return
	}
	s.Figures = a.take
	s.Failed = func(d rendezvous.Death) { a.overview.Died(d.Rank, d.Host, d.How(), d.Reason) }
	a.begin(world{size: size, from: s.Epoch << 20, joined: func() int { return len(s.Joined()) }, inquiry: q,
		inspect: s.Inspect})
}

// world is a world that an audience sees: see rendezvous.Server. No function blocks.
type world struct {
	size    int
	from    uint64 // its first generation
	joined  func() int
	inquiry *inquiry
	inspect func(ranks []int)
}

// begin shows a world from now on.
func (a *audience) begin(w world) {
	q := w.inquiry
	if a.metrics != nil {
		a.metrics.Form(w.size, w.from, w.joined, q.unless(metricsAge))
	}
	a.overview.Form(w.size, w.from, w.joined, q.unless(0))
	a.overview.SetInspect(w.inspect)
	if a.ledger != nil {
		a.ledger.Form(w.size, w.from, q.unless(ledgerAge))
	}
}

// take takes a rank's figures: see rendezvous.Server.Figures.
func (a *audience) take(rank int, generation uint64, host string, value []byte) {
	if a.metrics != nil {
		a.metrics.Job().Take(rank, generation, host, value)
	}
	a.overview.Take(rank, generation, host, value)
	if a.ledger != nil {
		a.ledger.Take(rank, generation, host, value)
	}
}

// formedAnew notes why the world that follows is formed; an empty cause is of the first one. words are those of the
// last world's ranks for their failure, if any.
func (a *audience) formedAnew(cause membership.Cause, words string) {
	if a == nil || cause == "" {
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
	a.overview.Because(because)
}

// inquiry asks the ranks of a world on behalf of several readers. All of them get each answer, and a rank answers only
// so often. So the overview, which looks each second, asks whenever it wants, and the others ask only if nobody has
// asked of late.
type inquiry struct {
	ask func()

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
func (q *inquiry) unless(within time.Duration) func() {
	return func() {
		now := time.Now()
		q.mu.Lock()
		fresh := now.Sub(q.last) < within
		if !fresh {
			q.last = now
		}
		q.mu.Unlock()
		if !fresh {
			q.ask()
		}
	}
}

// watchWorld lets the job's audience and its telemetry follow the ranks that meet at s, a world of size ranks. It is
// called before s serves.
func (j *Job) watchWorld(s *rendezvous.Server, size int) {
	follow(s, size, j.Audience, j.Telemetry)
	j.worlds.Add(1)
	j.awaitRanks(s, size)
}

// follow lets an audience and a telemetry, each of which may be nil, follow the ranks that meet at s, a world of size
// ranks. It is called before s serves.
func follow(s *rendezvous.Server, size int, a *audience, t *otlp.Job) {
	q := &inquiry{ask: s.AskFigures}
	a.form(s, size, q)
	if t == nil {
		return
	}
	others := s.Figures
	s.Figures = func(rank int, generation uint64, host string, value []byte) {
		if others != nil {
			others(rank, generation, host, value)
		}
		t.Take(rank, generation, host, value)
	}
	failed := s.Failed
	s.Failed = func(d rendezvous.Death) {
		if failed != nil {
			failed(d)
		}
		t.Broke(s.Epoch << 20)
	}
	t.Form(size, s.Epoch<<20, func() int { return len(s.Joined()) }, q.unless(spansAge))
}

// setLines sets the function that returns the last lines of a rank, or of a worker in an elastic job: see
// overview.Job.SetLines.
func (a *audience) setLines(f func(number int) (stdout, stderr string, ok bool)) {
	if a != nil {
		a.overview.SetLines(f)
	}
}

// note shows a message of the launcher.
func (a *audience) note(text string) {
	if a != nil {
		a.overview.Note(text)
	}
}

// summarize says where the time of the job went, if it was long enough.
func (j *Job) summarize() {
	if text := j.Audience.summary(); text != "" {
		j.err.Say("%s", logging.Message(slog.LevelInfo, j.Name, text))
	}
}

// summary says where the time of the job went; empty if the job was too short, or has no summary.
func (a *audience) summary() string {
	if a == nil || a.ledger == nil {
		return ""
	}
	return a.ledger.Text(a.least)
}

// end tells the readers how the job has ended.
func (a *audience) end(code int, why report, err error) {
	if a == nil {
		return
	}
	e := overview.Ending{Code: code, Text: why.Text}
	if err != nil {
		e.Text = err.Error()
	}
	a.overview.End(e)
}

// close ends the pages.
func (a *audience) close() {
	if a == nil {
		return
	}
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
