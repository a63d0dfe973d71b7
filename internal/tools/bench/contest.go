package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"time"
)

// Entrant is a contender of a Contest, which somebody else knows how to start.
type Entrant struct {
	Name  string
	About string // versions
	// Lists: the contender also has asynchronous calls, or reduces a list in another way.
	Lists bool
	// Command starts the job whose ranks connect to socket. floats is the length of the longest tensor. The end of ctx
	// ends the job.
	Command func(ctx context.Context, socket, floats string) *exec.Cmd
}

// Work is what all entrants of a Contest do in turn: they reduce one tensor, or a list of them.
type Work struct {
	Name  string
	Sizes []int // floats of each tensor
	Inner int   // how often it is done between two looks at the clock, 1 or more
	List  bool  // submitted asynchronously, then waited for
}

// Bytes is how much one rank contributes.
func (w *Work) Bytes() int { return 4 * w.floats() }

func (w *Work) floats() (n int) {
	for _, s := range w.Sizes {
		n += s
	}
	return n
}

// Many are n tensors of so many floats.
func Many(n, floats int) []int { return slices.Repeat([]int{floats}, n) }

// ResNet50 are the lengths of ResNet-50's gradients, in the order in which backward finishes them.
func ResNet50() []int { return resNet50() }

// Outcome is what an Entrant took for a Work.
type Outcome struct {
	Work    string `json:"work"`
	Bytes   int    `json:"bytes"` // that one rank contributes
	Tensors int    `json:"tensors"`
	Peer    string `json:"peer"`
	Time    Stat   `json:"time"` // seconds of one operation
	// CPU is the processor time of all ranks together for one operation, in seconds. It contains the barriers between
	// repetitions, and the kernel's work for the ranks.
	CPU float64 `json:"cpu"`
	// Rounds are the medians of the rounds, in their order.
	Rounds []float64 `json:"rounds"`
	// Skipped says why there are no figures, if there are none.
	Skipped string `json:"skipped,omitempty"`
}

// Contest lets entrants take turns at works, in rounds whose number is fixed beforehand.
type Contest struct {
	Dir      string // for control sockets
	Ranks    int    // of each entrant
	Entrants []Entrant
	Works    []Work
	// Rounds is how many turns each entrant has at each work after the first one, which does not count. Work of
	// longRep or more has LongRounds turns, and all count: the check before each turn is its warm-up.
	Rounds, LongRounds int
	// Turn is about how long a turn may take, if more than one repetition fits.
	Turn time.Duration
	// Most is the longest operation that has a turn: it is longer than what the same entrant took for a shorter list,
	// extrapolated.
	Most time.Duration
	// Until is when no more work is begun. Work that all have begun in a round is finished.
	Until time.Time
	Tell  func(format string, args ...any)
	Show  io.Writer // the jobs' output; nil for nowhere
}

// contestLimit is how long ranks may take to carry out one order of a contest.
const contestLimit = 2 * time.Minute

// bout is one entrant at one work.
type bout struct {
	task    *task
	peer    *contender
	out     *Outcome
	rep     float64 // seconds of one operation in the last turn
	samples []float64
	cpu     float64 // seconds of all ranks for done operations
	done    int
}

// Run starts the entrants, lets them take turns, and ends them. Outcomes are in the order of works, and of entrants for
// each.
//
// An entrant that fails has no more turns, and no figures: they would be of fewer rounds than those of the others. The
// others go on. Then the error names the one that failed, and says what its job printed last. There are no outcomes if
// ctx ends, or if no entrant is left.
func (c *Contest) Run(ctx context.Context) ([]Outcome, error) {
	floats := 1
	for _, w := range c.Works {
		if !w.List {
			floats = max(floats, w.floats())
		}
	}
	var all []*contender
	defer func() {
		for _, x := range all { // all at once, so that they end in parallel
			x.hangUp()
		}
		for _, x := range all {
			x.end()
		}
	}()
	for i, e := range c.Entrants {
		x, err := newContender(c.Dir, fmt.Sprintf("s%d", i), e.About, c.Ranks, allModes...)
		if err != nil {
			return nil, err
		}
		x.name, x.limit = e.Name, contestLimit
		all = append(all, x)
		// One after another: all at once they would start slowly, and some would give up.
		if err := x.start(e.Command(ctx, x.socket(), fmt.Sprint(floats)), c.Show); err != nil {
			c.leaveOut(x, fmt.Errorf("%s: %w", e.Name, err))
		} else if err := x.greet(ctx); err != nil {
			c.leaveOut(x, err)
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
	outcomes := make([]Outcome, 0, len(c.Works)*len(all))
	bouts := make([][]*bout, len(c.Works))
	for i := range c.Works {
		w := &c.Works[i]
		t := &task{w.Name, modeAllreduce, w.Sizes, w.Inner}
		if w.List {
			t.mode = modeAsync
		}
		for j, x := range all {
			outcomes = append(outcomes, Outcome{Work: w.Name, Bytes: w.Bytes(), Tensors: len(w.Sizes),
				Peer: c.Entrants[j].Name})
			bouts[i] = append(bouts[i], &bout{task: t, peer: x, out: &outcomes[len(outcomes)-1]})
		}
	}
	if err := c.rounds(ctx, bouts); err != nil {
		return nil, err
	}
	for _, row := range bouts {
		for _, b := range row {
			b.conclude()
		}
	}
	var failures []error
	for _, x := range all {
		if x.failure != nil {
			failures = append(failures, x.failure)
		}
	}
	if len(failures) == len(all) {
		outcomes = nil
	}
	return outcomes, errors.Join(failures...)
}

// leaveOut notes why an entrant takes part no longer, and ends its ranks, so that they do not disturb the others.
func (c *Contest) leaveOut(x *contender, err error) {
	x.failure = err
	x.hangUp()
	c.Tell("%s is out: %v", x.name, err)
}

// rounds lets all take their turns. In each round another entrant begins. An error is the cause of ctx's end.
func (c *Contest) rounds(ctx context.Context, bouts [][]*bout) error {
	for r := range c.Rounds + 1 {
		if r == 0 {
			c.Tell("doing everything once")
		} else {
			c.Tell("round %d of %d", r, c.Rounds)
		}
		for i, row := range bouts {
			if time.Now().After(c.Until) {
				c.Tell("time is over before %s", row[0].task.name)
				return nil
			}
			for k := range row {
				b := row[(k+r)%len(row)]
				if r == 0 {
					if why := c.tooLong(bouts[:i], b); why != "" {
						b.out.Skipped = why
					}
				}
				if b.peer.failure != nil || b.out.Skipped != "" || r >= c.LongRounds && b.rep >= longRep {
					continue
				}
				err := b.turn(ctx, r, c.Turn)
				if cause := context.Cause(ctx); cause != nil {
					return cause
				}
				if err != nil {
					c.leaveOut(b.peer, fmt.Errorf("%s of %d bytes: %w", b.task.name, b.task.bytes(), err))
				}
			}
		}
	}
	return nil
}

// tooLong says why an entrant does not even begin with a list: by its time for the list before, it would take too long.
func (c *Contest) tooLong(before [][]*bout, b *bout) string {
	for _, row := range slices.Backward(before) {
		for _, a := range row {
			if a.peer != b.peer || a.task.mode != b.task.mode || a.task.mode != modeAsync {
				continue
			}
			if a.out.Skipped != "" {
				return a.out.Skipped
			}
			if likely := a.rep / float64(len(a.task.sizes)) * float64(len(b.task.sizes)); likely > c.Most.Seconds() {
				return fmt.Sprintf("about %.0f s", likely)
			}
			return ""
		}
	}
	return ""
}

// turn is one turn: repetitions that do not count, as many as warmupTime has, and others that fill the time.
func (b *bout) turn(ctx context.Context, round int, slice time.Duration) error {
	lead, reps := 0, 1
	if round > 0 && b.rep < longRep {
		one := b.rep * float64(b.task.inner)
		lead = min(int(math.Round(warmupTime/one)), mostLead)
		reps = min(max(int(slice.Seconds()/one)-lead, 1), 200)
	}
	before := b.peer.processorTime()
	times, err := b.peer.do(ctx, b.task, lead+reps)
	if err != nil {
		return err
	}
	used := b.peer.processorTime() - before
	operations := len(times)*b.task.inner + 1 // and the check
	times = times[lead:]
	b.rep = newStat(slices.Clone(times)).Median
	if round == 0 && b.rep < longRep {
		return nil
	}
	b.out.Rounds = append(b.out.Rounds, b.rep)
	b.samples = append(b.samples, times...)
	b.cpu += used
	b.done += operations
	return nil
}

func (b *bout) conclude() {
	if b.peer.failure != nil {
		b.out.Skipped, b.out.Rounds = "failed", nil
	} else if len(b.samples) > 0 {
		b.out.Time = newStat(b.samples)
		b.out.CPU = b.cpu / float64(b.done)
	} else if b.out.Skipped == "" {
		b.out.Skipped = "no time"
	}
}

// WorkerCommand are the arguments with which gorovod is a rank of the Go job.
func WorkerCommand(socket, floats string) []string {
	return []string{"bench", workerArgument, socket, floats}
}
