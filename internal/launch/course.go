package launch

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// newsPatience is how long the launcher waits after the first failure for news that is under way. It orders news by the
// time of the events, not by the time of arrival.
const newsPatience = vigilInterval + tailPatience + 50*time.Millisecond

// reportTime is how long the launcher waits for the reports of processes that have ended.
const reportTime = time.Second

// news is an event of one rank.
type news struct {
	rank  *rank
	kind  newsKind
	death rendezvous.Death // of ended
	err   error            // of cannotStart
}

type newsKind int

const (
	ended newsKind = iota
	cannotStart
	gone // no process of the rank is left
)

// The stages of ending the processes that are left.
const (
	runs = iota
	grace
	terminated // SIGTERM was sent
	killed     // SIGKILL was sent
	leftBehind
)

// course follows a job from the last start to the last end. The first failure, or the first signal, begins the stages
// of its end. One goroutine uses it.
type course struct {
	job         *Job
	living      map[int]*rank
	failures    []rendezvous.Death  // in order of arrival
	startErr    error               // the first
	interrupted syscall.Signal      // the first
	first       *rendezvous.Failure // what a rank reported before the failures; nil if there is none

	stage int
	next  <-chan time.Time // when the next stage begins
	asked time.Time        // when SIGTERM was sent: a process that ends later may have ended by it

	outlook    string           // what will happen to the others, as of the first failure
	concluding <-chan time.Time // fires when the first failure is to be told
	concluded  bool
	told       bool
}

// follow is the launcher's loop, from the last start to the last end.
func (j *Job) follow(signals <-chan os.Signal, heard <-chan news) (int, error) {
	c := &course{job: j, living: map[int]*rank{}}
	for _, r := range j.ranks {
		c.living[r.Rank] = r
	}
	hungUp := j.hungUp
	for len(c.living) > 0 && c.stage != leftBehind {
		select {
		case n := <-heard:
			c.hear(n)
		case s := <-signals:
			c.interrupt(s.(syscall.Signal))
		case <-hungUp:
			hungUp = nil
			c.hangUp()
		case <-c.concluding:
			c.conclude()
		case <-c.next:
			c.enter(c.stage + 1)
		}
	}
	return c.end(signals)
}

// hear handles an event.
func (c *course) hear(n news) {
	switch n.kind {
	case gone:
		delete(c.living, n.rank.Rank)
	case cannotStart:
		if c.startErr == nil {
			c.startErr = n.err
		}
		if c.stage < terminated {
			c.enter(terminated)
		}
	case ended:
		if !n.death.Failed() || c.startErr != nil || c.interrupted != 0 && len(c.failures) == 0 {
			return
		}
		c.failures = append(c.failures, n.death)
		if len(c.failures) == 1 {
			c.outlook = c.job.outlook(len(c.living))
			c.concluding = time.After(newsPatience)
			if c.stage == runs {
				c.enter(grace)
			}
		}
		if c.concluded {
			c.tell(false)
		}
	}
}

// interrupt handles a signal to the launcher. The second one kills.
func (c *course) interrupt(sig syscall.Signal) {
	if c.interrupted != 0 {
		c.job.hurried = true
		c.enter(killed)
		return
	}
	c.interrupted = sig
	c.job.tell("passing %s on to the processes", rendezvous.SignalName(int(sig)))
	c.pass(sig)
	if c.stage < terminated {
		c.enter(grace)
	}
}

// hangUp ends a job whose output has lost its reader.
func (c *course) hangUp() {
	if c.interrupted == 0 {
		c.interrupted = syscall.SIGPIPE
	}
	if c.stage < terminated {
		c.enter(terminated)
	}
}

func (c *course) pass(sig syscall.Signal) {
	if c.asked.IsZero() {
		c.asked = time.Now()
	}
	for _, r := range c.living {
		r.signal(sig)
	}
}

// enter begins a stage.
func (c *course) enter(stage int) {
	c.stage = stage
	switch stage {
	case grace:
		c.next = time.After(c.job.Grace)
	case terminated:
		if c.concluded {
			c.tell(true) // SIGTERM comes now, so no process ends by itself any more
		}
		c.job.tell("terminating the processes that are left")
		c.pass(syscall.SIGTERM)
		c.next = time.After(termGrace)
	case killed:
		c.job.tell("killing the processes that are left")
		c.pass(syscall.SIGKILL)
		c.next = time.After(killGrace)
	case leftBehind:
		for _, rank := range slices.Sorted(maps.Keys(c.living)) {
			r := c.living[rank]
			c.job.sayError("rank %d on host %s (pid %d) cannot be killed; it is left behind", r.Rank, r.Host,
				r.pid.Load())
		}
	}
}

// conclude announces the first failure. It first waits, at most reportTime, for the reports of ended processes.
func (c *course) conclude() {
	c.concluding, c.concluded = nil, true
	var over []int
	for _, r := range c.job.ranks {
		if c.living[r.Rank] == nil {
			over = append(over, r.Rank)
		}
	}
	c.job.server.Drain(reportTime, over...)
	c.tell(false)
}

// root is the end of the process that failed first. If a rank has reported another rank before, root is the end of the
// reported rank: the other ends are consequences, however early they come. The root is unknown while the reported rank
// lives, because that rank may end by itself.
func (c *course) root() (d rendezvous.Death, known bool) {
	own := slices.DeleteFunc(slices.Clone(c.failures),
		func(d rendezvous.Death) bool { return !c.asked.IsZero() && d.At.After(c.asked) })
	if len(own) == 0 {
		own = c.failures
	}
	d = slices.MinFunc(own, func(a, b rendezvous.Death) int { return a.At.Compare(b.At) })
	if c.first == nil {
		c.first = c.job.server.First()
	}
	if c.first == nil {
		return d, true
	}
	if i := slices.IndexFunc(own, func(d rendezvous.Death) bool { return d.Rank == c.first.About }); i >= 0 {
		return own[i], true
	}
	return d, c.living[c.first.About] == nil
}

// tell announces the first failure, once, as soon as its root is known. now: nothing more can come.
func (c *course) tell(now bool) {
	if c.told || len(c.failures) == 0 {
		return
	}
	d, known := c.root()
	if !known && !now && c.stage < terminated {
		return
	}
	c.told = true
	if c.stage >= terminated {
		c.outlook = ""
	}
	if d.Lost != "" {
		c.job.sayError("%s.%s", d, c.outlook)
		return
	}
	because := ""
	if c.first != nil && c.first.About != d.Rank {
		because = fmt.Sprintf(" because of rank %d", c.first.About) // that rank's end is no failure, or has not come
	}
	c.job.sayError("Process %d exit with status code %d%s.%s", d.Rank, exitCode(d), because, c.outlook)
}

// outlook says what will happen to the other processes.
func (j *Job) outlook(left int) string {
	if left < 2 {
		return ""
	}
	return fmt.Sprintf(" The other processes have %v to end by themselves.", j.Grace)
}

// end says why the job has ended, and returns its exit code.
func (c *course) end(signals <-chan os.Signal) (int, error) {
	if c.concluding != nil {
		<-c.concluding
		c.conclude()
	}
	c.tell(true)
	late := c.job.drain(signals, c.interrupted != 0)
	if c.interrupted == 0 {
		c.interrupted = late
	}
	switch {
	case c.startErr != nil:
		return 1, c.startErr
	case len(c.failures) > 0:
		d, _ := c.root()
		c.job.explain(d, c.first)
		return exitCode(d), nil
	case c.interrupted == syscall.SIGPIPE:
		return 128 + int(c.interrupted), nil // the reader is gone, so there is nothing to say
	case c.interrupted != 0:
		c.job.summarize()
		c.job.sayWhy(interruption(c.interrupted))
		return 128 + int(c.interrupted), nil
	}
	c.job.summarize()
	return 0, nil
}

// interruption says that a signal has ended the job.
func interruption(sig syscall.Signal) string {
	return fmt.Sprintf("interrupted by signal %d (%s)", int(sig), rendezvous.SignalName(int(sig)))
}

// explain prints the last block: which process failed first, how, and its last output. first is a rank's report before
// the failures; nil if there is none.
func (j *Job) explain(d rendezvous.Death, first *rendezvous.Failure) {
	var b strings.Builder
	used := len(j.server.Joined()) > 0
	d.NeverJoined = d.NeverJoined && used // no rank used Horovod, so a rank that never joined means nothing
	culprit := d.Rank
	switch {
	case first != nil: // later failures are consequences, whichever process ended first
		culprit = first.About
		b.WriteString("root cause: " + first.Text)
	default:
		b.WriteString("root cause: " + d.String())
		if d.Reason != "" {
			fmt.Fprintf(&b, "\nit reported: %s", d.Reason)
		}
	}
	if v := j.server.Verdict(); v != nil && (strings.Contains(b.String(), v.Cause) || first != nil &&
		strings.Contains(v.Cause, strings.TrimSuffix(first.Text, rendezvous.Unfinished))) {
		b.WriteString(v.View) // the verdict is about this failure
	}
	stderr := j.ranks[culprit].streams[stderrStream]
	absent := ""
	if missing := j.server.Missing(); used && !d.NeverJoined && len(missing) > 0 && len(missing) <= 16 {
		absent = "\nranks that never came to hvd.init(): " + strings.Trim(fmt.Sprint(missing), "[]")
	}
	j.why = report{Text: b.String() + absent, Stderr: stderr.last()}
	lines := j.lastLines(j.why.Stderr, stderr.prefix, stderr.shown.Load())
	if first == nil && d.Reason == "" && d.Signal == 0 {
		lines = lastException(j.why.Stderr) + lines
	}
	j.sayFailure(b.String(), lines, absent)
}

// lastException is the exception at the end of a process's stderr, as a part of a sentence.
func lastException(stderr string) string {
	if e := pythonException(stderr); e != "" {
		return ": " + e
	}
	return ""
}

// lastLines says where to find the last lines that a process wrote to stderr. The last of them is line number shown of
// the launcher's stderr. If they have scrolled away, lastLines repeats them instead.
func (j *Job) lastLines(text, prefix string, shown int64) string {
	switch {
	case text == "":
		return ""
	case j.err.sees(shown):
		return "; its stderr is above, in the lines of " + strings.TrimSuffix(prefix, ":")
	}
	return fmt.Sprintf("; last lines of its stderr:\n  %s", strings.ReplaceAll(text, "\n", "\n  "))
}
