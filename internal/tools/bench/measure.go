package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/load"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/tools/progress"
)

const (
	// Repetitions that begin in the first warmupTime seconds of a turn do not count: after another contender's turn,
	// caches are cold, and for some milliseconds the ranks may share a core, until the scheduler moves one away. For
	// work of longRep seconds or more, the check is the warm-up.
	warmupTime = 10e-3
	longRep    = 100e-3
	mostLead   = 1000
	// fewReps is how many repetitions of a turn count at least, if one takes less than shortRep seconds.
	fewReps  = 10
	shortRep = 10e-3
	// warmShare is the fraction of the measuring time that passes before the rounds that count.
	warmShare = 0.25
	// lookTime is how long the machine is watched between rounds. Processor time is told in hundredths of a second.
	lookTime = 100 * time.Millisecond
)

// series is the samples of one contender for one task.
type series struct {
	task    *task
	peer    *contender
	rep     float64   // seconds of a repetition in the last turn
	cost    float64   // rep plus its share of the rest of a turn, such as the check
	samples []float64 // seconds of one operation
	early   []float64 // samples of the last turn before the rounds, if there are no others
	round   int       // where the samples of the current round begin
	fast    []float64 // samples of the rounds in the fast mode
}

// measure starts the contenders, lets them take turns until their time is over, and ends them. It leaves out contenders
// that fail from then on, and notes them in the report. It returns soon after ctx has ended.
func (o *options) measure(ctx context.Context, stderr io.Writer) (*Report, error) {
	var telling sync.Mutex // line prints, too
	var line *progress.Line
	tell := func(format string, args ...any) {
		telling.Lock()
		defer telling.Unlock()
		fmt.Fprintf(line.Over(stderr), "bench: "+format+"\n", args...)
	}
	line = progress.New(stderr, func(text string) { tell("%s", text) })
	defer line.Close()
	begin := time.Now()
	report := &Report{Version: reportVersion, Started: begin.UTC().Truncate(time.Second), Gorovod: version.Version,
		Ranks: o.NumProc, Quick: o.Quick, Machine: thisMachine()}
	tasks := o.tasks()
	largest := 1
	for _, t := range tasks {
		if t.mode == modeAllreduce {
			largest = max(largest, t.sizes[0])
		}
	}
	dir, err := os.MkdirTemp("", "gorovod-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var show io.Writer
	if o.Verbose {
		show = stderr
	}
	if now := load.Now(); now.Full() {
		tell("%v: other programs use this machine; if they go on, the figures will be marked as noise", now)
	}
	tell("starting the jobs")
	line.Wait(func() (string, bool) {
		return fmt.Sprintf("the jobs are starting, for %.0f s", time.Since(begin).Seconds()), true
	})
	all, err := o.startAll(ctx, dir, largest, show, func(name, why string) {
		tell("without %s: %s", labels(name), why)
		report.Skipped = append(report.Skipped, Skipped{name, why})
	})
	defer func() {
		for _, c := range all { // all at once, so that they end in parallel
			c.hangUp()
		}
		for _, c := range all {
			c.end()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := o.enoughMemory(largest, len(all)); err != nil {
		return nil, err
	}
	s := &schedule{all: all, tell: tell, line: line, most: o.mostReps(), cores: twoCores, strangers: strangers}
	for _, c := range all {
		s.check(ctx, c, c.greet(ctx))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		report.Peers = append(report.Peers, Peer{c.name, c.about})
		if c.failure == nil {
			tell("%s is ready after %.0f s", label(c.name), time.Since(begin).Seconds())
		}
	}
	for i := range tasks {
		for _, c := range all {
			if c.can(&tasks[i]) {
				s.series = append(s.series, &series{task: &tasks[i], peer: c})
			}
		}
	}
	started := time.Now()
	report.Rounds = s.run(ctx, o.deadline(begin, started), o.rounds())
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.failure != nil {
			report.Failed = append(report.Failed, Skipped{c.name, c.failure.Error()})
		}
	}
	report.Machine.LoadAfter = load.Now().Average
	report.Seconds = time.Since(begin).Seconds()
	report.conclude(s)
	if len(report.Results) == 0 && len(report.Failed) == 0 {
		return nil, fmt.Errorf("nothing was measured: the jobs took %.0f s to start: %s",
			started.Sub(begin).Seconds(), moreTime)
	}
	return report, nil
}

// rounds is how many turns each contender has at most.
func (o *options) rounds() int {
	switch {
	case o.tiny:
		return 2
	case o.Quick:
		return 8
	}
	return 24
}

// mostReps is how many repetitions one turn has at most.
func (o *options) mostReps() int {
	if o.tiny {
		return 3
	}
	return 100
}

// enoughMemory refuses work that would make the machine swap, or kill processes.
func (o *options) enoughMemory(floats, contenders int) error {
	lists := resNet50()
	if o.BERT {
		lists = append(lists, bertLarge()...)
	}
	gradients := 0
	for _, n := range lists {
		gradients += n
	}
	// Each rank has all of it, and possibly as much again in its engine's buffers.
	need := o.NumProc * (contenders*2*4*(floats+gradients) + 2*addBytes(o.NumProc))
	if have := availableBytes(); have > 0 && need > have {
		return fmt.Errorf("%d contenders of %d ranks need up to %.1f GiB of memory, and there are %.1f: choose a "+
			"smaller --max-size, or fewer --peers", contenders, o.NumProc, float64(need)/(1<<30), float64(have)/(1<<30))
	}
	return nil
}

// schedule lets contenders take turns.
type schedule struct {
	all    []*contender
	series []*series // those of one task are adjacent
	most   int       // repetitions of a turn, at most
	tell   func(format string, args ...any)
	line   *progress.Line // nil if nothing is shown
	cores  func() float64 // twoCores
	modes  []float64      // its results before the first round and after each round

	strangers func() float64 // strangers
	others    []float64      // its results then
}

// check leaves out a contender that has failed.
func (s *schedule) check(ctx context.Context, c *contender, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	c.failure = err
	c.hangUp()
	s.tell("%v; it is left out", err)
}

// run does rounds until there have been enough, or until the deadline, and returns how many it began. In a round every
// contender has its turn at every task, one directly after the other. Each round begins with another contender. Between
// rounds it measures the machine's mode.
func (s *schedule) run(ctx context.Context, deadline time.Time, rounds int) int {
	defer s.line.Done()
	s.tell("doing everything once, %.0f s left", time.Until(deadline).Seconds())
	s.show("everything once", deadline)
	if !s.round(ctx, deadline, 0, func(*series) turn { return turn{reps: 1} }, false) {
		return 0
	}
	// The warm-up is not measured: a contender finds out about its work, and gets memory from the system. It takes a
	// share of the time.
	s.tell("warming up")
	s.show("warming up", deadline)
	slice := warmShare * time.Until(deadline).Seconds() / float64(len(s.series))
	s.round(ctx, deadline, 0, func(x *series) turn { return s.plan(slice, x) }, false)
	s.look()
	for r := range rounds {
		left := time.Until(deadline).Seconds()
		if left <= 0 || ctx.Err() != nil {
			return r
		}
		s.show(fmt.Sprintf("round %d of at most %d", r+1, rounds), deadline)
		slice = left / float64((rounds-r)*len(s.series))
		whole := s.round(ctx, deadline, r, func(x *series) turn { return s.plan(slice, x) }, true)
		s.look()
		for _, x := range s.series {
			if fast(s.modes[r], s.modes[r+1]) {
				x.fast = append(x.fast, x.samples[x.round:]...)
			}
			x.round = len(x.samples)
		}
		if !whole {
			return r + 1
		}
	}
	return rounds
}

// look measures the machine while no contender has a turn.
func (s *schedule) look() {
	s.modes = append(s.modes, s.cores())
	s.others = append(s.others, s.strangers())
}

// strangers is how many cores other programs use in lookTime.
func strangers() float64 {
	before := load.Used()
	time.Sleep(lookTime)
	return load.Used().Others(before)
}

// show shows the present step, and how much time is left.
func (s *schedule) show(what string, deadline time.Time) {
	s.line.Wait(func() (string, bool) {
		return fmt.Sprintf("%s, %.0f s left", what, max(0, time.Until(deadline).Seconds())), true
	})
}

// turn is how often a contender does a task: first lead times that do not count, then reps.
type turn struct{ lead, reps int }

// plan makes the next turn of x, of about slice seconds, by the same rule for all contenders.
func (s *schedule) plan(slice float64, x *series) turn {
	t := turn{reps: 1}
	if x.rep < shortRep {
		t.reps = fewReps
	}
	if x.rep < longRep {
		t.lead = min(int(math.Ceil(warmupTime/x.rep)), mostLead)
	}
	t.reps = min(max(int(slice/x.cost)-t.lead, t.reps), s.most)
	return t
}

// round gives each series its planned turn, and reports whether there was time for all. It begins a task only before
// the deadline; then all contenders do it.
func (s *schedule) round(ctx context.Context, deadline time.Time, r int, plan func(*series) turn, keep bool) bool {
	for rest := s.series; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].task == rest[0].task {
			n++
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return false
		}
		for i := range n {
			x := rest[(i+r)%n]
			if x.peer.failure != nil {
				continue
			}
			x.take(ctx, s, plan(x), keep)
		}
		rest = rest[n:]
	}
	return true
}

// take lets the series' contender take its turn.
func (x *series) take(ctx context.Context, s *schedule, t turn, keep bool) {
	begin := time.Now()
	times, err := x.peer.do(ctx, x.task, t.lead+t.reps)
	if err != nil {
		s.check(ctx, x.peer, fmt.Errorf("%s of %d bytes: %w", x.task.name, x.task.bytes(), err))
		return
	}
	x.cost = time.Since(begin).Seconds() / float64(len(times))
	times = times[t.lead:]
	if keep {
		x.samples = append(x.samples, times...)
	} else {
		x.early = times
	}
	x.rep = newStat(slices.Clone(times)).Median * float64(x.task.inner)
}

// find is the series of a contender and a task; nil if none has samples.
func find(all []*series, peer string, same func(*task) bool) *series {
	i := slices.IndexFunc(all, func(x *series) bool {
		return x.peer.name == peer && same(x.task) && len(
			x.samples) > 0
	})
	if i < 0 {
		return nil
	}
	return all[i]
}
