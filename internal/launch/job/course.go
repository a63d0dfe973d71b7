package job

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// newsPatience is how long the launcher waits after the first failure for news that is under way. It orders news by the
// time of the events, not by the time of arrival.
const newsPatience = spawn.VigilInterval + spawn.TailPatience + 50*time.Millisecond

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

// course follows a job from the last start to the last end: package ending decides, and course carries it out. One
// goroutine uses it.
type course struct {
	job      *Job
	state    *ending.State
	startErr error // the first
}

// follow is the launcher's loop, from the last start to the last end.
func (j *Job) follow(signals <-chan os.Signal, heard <-chan news) (int, error) {
	c := &course{job: j, state: ending.New(ending.Terms{Asked: j.Grace, Terminated: TermGrace, Killed: spawn.KillGrace,
		News: newsPatience})}
	for _, r := range j.ranks {
		c.state.Started(r.Rank)
	}
	hungUp := j.hungUp
	var timer alarm
	defer timer.stop()
	for !c.state.Over() {
		c.state.Reported(j.server.First())
		select {
		case n := <-heard:
			c.hear(n)
		case s := <-signals:
			c.do(c.state.Interrupt(time.Now(), s.(syscall.Signal)))
			j.hurried = j.hurried || c.state.Hurried()
		case <-hungUp:
			hungUp = nil
			c.do(c.state.HangUp(time.Now()))
		case <-timer.at(c.state.Next()):
			c.do(c.state.Tick(time.Now()))
		}
	}
	return c.end(signals)
}

// hear handles an event.
func (c *course) hear(n news) {
	switch n.kind {
	case gone:
		c.state.Gone(n.rank.Rank)
	case cannotStart:
		if c.startErr == nil {
			c.startErr = n.err
		}
		c.do(c.state.CannotStart(time.Now()))
	case ended:
		if n.death.Failed() {
			c.do(c.state.Failed(time.Now(), ending.Failure{Worker: n.rank.Rank, Epoch: 1, Death: n.death}))
		}
	}
}

// do carries actions out.
func (c *course) do(actions []ending.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case ending.Pass:
			c.job.tell("%s", a.Why)
			for _, r := range c.job.ranks {
				if c.state.Lives(r.Rank) {
					r.signal(a.Signal)
				}
			}
		case ending.Collect:
			c.do(c.state.Collected(c.collect()))
		case ending.Announce:
			c.announce(a)
		case ending.LeaveBehind:
			for _, r := range c.job.ranks {
				if c.state.Lives(r.Rank) {
					c.job.sayError("rank %d on host %s (pid %d) cannot be killed; it is left behind", r.Rank, r.Host,
						r.pid.Load())
				}
			}
		}
	}
}

// collect waits, at most reportTime, for the reports of ended processes. It returns the first one of all, or nil.
func (c *course) collect() *rendezvous.Failure {
	var over []int
	for _, r := range c.job.ranks {
		if !c.state.Lives(r.Rank) {
			over = append(over, r.Rank)
		}
	}
	c.job.server.Drain(reportTime, over...)
	return c.job.server.First()
}

// announce prints the headline of the first failure.
func (c *course) announce(a ending.Announce) {
	d, outlook := a.Failure.Death, ""
	if a.Others {
		outlook = fmt.Sprintf(" The other processes have %v to end by themselves.", c.job.Grace)
	}
	if d.Lost != "" {
		c.job.sayError("%s.%s", d, outlook)
		return
	}
	because := ""
	if a.Because >= 0 {
		because = fmt.Sprintf(" because of rank %d", a.Because)
	}
	c.job.sayError("Process %d exit with status code %d%s.%s", d.Rank, ending.Code(d), because, outlook)
}

// end says why the job has ended, and returns its exit code.
func (c *course) end(signals <-chan os.Signal) (int, error) {
	if at, ok := c.state.Collects(); ok {
		time.Sleep(time.Until(at))
		c.do(c.state.Tick(at))
	}
	c.state.Reported(c.job.server.First())
	c.do(c.state.Conclude())
	if late := c.job.drain(signals, c.state.Interrupted() != 0); late != 0 {
		c.state.Late(late)
	}
	interrupted := c.state.Interrupted()
	if c.startErr != nil {
		return 1, c.startErr
	}
	if f, failed := c.state.Root(); failed {
		c.job.explain(f.Death, c.state.First())
		return ending.Code(f.Death), nil
	}
	if interrupted == syscall.SIGPIPE {
		return ending.SignalCode(interrupted), nil // the reader is gone, so there is nothing to say
	}
	c.job.summarize()
	if interrupted != 0 {
		c.job.sayWhy(ending.Interruption(interrupted))
		return ending.SignalCode(interrupted), nil
	}
	return 0, nil
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
	stderr := j.ranks[culprit].streams[spawn.Stderr]
	absent := ""
	if missing := j.server.Missing(); used && !d.NeverJoined && len(missing) > 0 && len(missing) <= 16 {
		absent = "\nranks that never came to hvd.init(): " + strings.Trim(fmt.Sprint(missing), "[]")
	}
	j.why = output.Report{Text: b.String() + absent, Stderr: stderr.Last()}
	lines := j.lastLines(j.why.Stderr, stderr.Prefix, stderr.Shown.Load())
	if first == nil && d.Reason == "" && d.Signal == 0 {
		lines = lastException(j.why.Stderr) + lines
	}
	j.sayFailure(b.String(), lines, absent)
}

// lastException is the exception at the end of a process's stderr, as a part of a sentence.
func lastException(stderr string) string {
	if e := output.PythonException(stderr); e != "" {
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
	case j.err.Sees(shown):
		return "; its stderr is above, in the lines of " + strings.TrimSuffix(prefix, ":")
	}
	return fmt.Sprintf("; last lines of its stderr:\n  %s", strings.ReplaceAll(text, "\n", "\n  "))
}
