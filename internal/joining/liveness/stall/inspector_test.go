package stall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const sec = time.Second

// bench is an Inspector of rank 0 of 2. The test sets the fields, which say what this rank waits for. Rank 1 waits for
// nothing. mu guards the fields while an inspection runs.
type bench struct {
	*Inspector
	mu        sync.Mutex
	pending   []Waiting
	snapshots int
	asks      int
	log       []string
	aborts    []error
}

func newBench(t *testing.T, check, shutdown time.Duration, change func(*Options)) *bench {
	b := &bench{}
	o := Options{
		CheckTime: check, ShutdownTime: shutdown,
		Snapshot: func() []Waiting {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.snapshots++
			return b.pending
		},
		Ask: func(context.Context) ([][]byte, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asks++
			return [][]byte{nil, encode(nil, "", false)}, nil
		},
		Members:  func(int) []int { return []int{0, 1} },
		Describe: func(r int) string { return fmt.Sprintf("rank %d on host h", r) },
		Log:      slog.New(logged{lines: &b.log}),
		Abort:    func(err error) { b.aborts = append(b.aborts, err) },
	}
	if change != nil {
		change(&o)
	}
	b.Inspector = New(o)
	t.Cleanup(b.Close)
	return b
}

// at makes one Check with these pending tensors, waits for it, and returns the names of the tensors that it reported.
func (b *bench) at(pending ...Waiting) string {
	b.mu.Lock()
	b.pending, b.log = pending, nil
	b.mu.Unlock()
	var oldest time.Duration
	for _, w := range pending {
		oldest = max(oldest, w.Since)
	}
	b.Check(oldest)
	b.wg.Wait()
	var names []string
	for _, l := range strings.Split(strings.Join(b.log, "\n"), "\n") {
		if name, _, ok := strings.Cut(l, " (ALLREDUCE) has "); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func waits(name string, since time.Duration) Waiting {
	return Waiting{Name: name, Op: "ALLREDUCE", Since: since}
}

func (b *bench) want(t *testing.T, got, want string, asks int) {
	t.Helper()
	if got != want || b.asks != asks || len(b.log) > 1 {
		t.Errorf("reported %q after %d asks in %d messages, want %q after %d", got, b.asks, len(b.log), want, asks)
	}
}

func TestEachTensorIsReportedOncePerInterval(t *testing.T) {
	b := newBench(t, 60*sec, 0, nil)
	b.want(t, b.at(waits("a", 10*sec)), "", 0)
	b.want(t, b.at(waits("a", 61*sec), waits("b", 30*sec)), "a", 1)
	b.want(t, b.at(waits("a", 62*sec), waits("b", 31*sec)), "", 1)
	b.want(t, b.at(waits("a", 92*sec), waits("b", 61*sec)), "b", 2)
	b.want(t, b.at(waits("a", 120*sec), waits("b", 90*sec)), "", 2)
	b.want(t, b.at(waits("a", 121*sec), waits("b", 90*sec)), "a", 3)
	b.want(t, b.at(waits("a", 190*sec), waits("b", 160*sec)), "a b", 4)
	// The next operation of the same name.
	b.want(t, b.at(waits("a", 70*sec), waits("b", 161*sec)), "a", 5)
	// Gone, and back at an age that has been reported before.
	b.want(t, b.at(waits("b", 162*sec)), "", 5)
	b.want(t, b.at(waits("a", 71*sec), waits("b", 163*sec)), "a", 6)
	// The same name in another set is another operation.
	other := waits("a", 72*sec)
	other.Set = 3
	if got := b.at(waits("a", 72*sec), other); got != "" || !strings.Contains(b.log[0],
		"a (ALLREDUCE, process set 3)") {
		t.Errorf("reported %q: %q", got, b.log)
	}
	if len(b.marks) != 2 {
		t.Errorf("%d operations are remembered", len(b.marks))
	}
}

// The first word on a wait comes after 10 s, as information, once for each place at which a rank is late.
func TestANoticeIsGivenOnce(t *testing.T) {
	b := newBench(t, 60*sec, 0, nil)
	there := "save (a.py:3)"
	b.o.Ask = func(context.Context) ([][]byte, error) {
		b.asks++
		return [][]byte{nil, encode(nil, there, false)}, nil
	}
	b.want(t, b.at(waits("a", 11*sec)), "WARN+1 a", 1)
	const says = "WARN+1 a (ALLREDUCE) has waited for 11 seconds on rank 0: rank 1 on host h has not submitted it, " +
		"and waits for nothing: it is computing or stuck outside of Horovod, in save (a.py:3)"
	if b.log[0] != says {
		t.Errorf("it says %q", b.log)
	}
	b.want(t, b.at(waits("a", 12*sec)), "", 1)
	b.want(t, b.at(waits("next", 11*sec)), "", 2) // late at the same place
	there = "load (a.py:9)"
	b.want(t, b.at(waits("other", 11*sec)), "WARN+1 other", 3)
	b.want(t, b.at(waits("other", 61*sec)), "other", 4) // the report comes all the same
}

func TestNothingIsAskedForYoungOrJoined(t *testing.T) {
	b := newBench(t, 60*sec, 120*sec, nil)
	b.want(t, b.at(waits("a", 10*sec)), "", 0)
	if b.snapshots != 0 {
		t.Error("a snapshot was taken of young operations")
	}
	b.want(t, b.at(Waiting{Name: "j", Op: OpJoin, Since: 500 * sec}, waits("a", 2*sec)), "", 0)
	off := newBench(t, 0, 0, nil)
	off.want(t, off.at(waits("a", time.Hour)), "", 0)
}

func TestWhatIsDoneMeanwhileIsNotReported(t *testing.T) {
	b := newBench(t, 60*sec, 100*sec, nil)
	ask := b.o.Ask
	b.o.Ask = func(ctx context.Context) ([][]byte, error) {
		b.mu.Lock()
		b.pending = []Waiting{waits("a", sec), waits("c", 150*sec)} // b done, a submitted again
		b.mu.Unlock()
		return ask(ctx)
	}
	if got := b.at(waits("a", 150*sec), waits("b", 150*sec), waits("c", 61*sec)); got != "c" {
		t.Errorf("reported %q", got)
	}
	b = newBench(t, 60*sec, 100*sec, nil)
	b.o.Ask = func(context.Context) ([][]byte, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pending = nil
		return make([][]byte, 2), nil
	}
	if got := b.at(waits("a", 150*sec)); got != "" || len(b.log) > 0 || len(b.aborts) > 0 {
		t.Errorf("reported %q: %q %v", got, b.log, b.aborts)
	}
}

func TestSetThatIsNoMoreIsNotReported(t *testing.T) {
	b := newBench(t, 60*sec, 100*sec, func(o *Options) { o.Members = func(int) []int { return nil } })
	if b.at(waits("a", 150*sec)); len(b.log) > 0 || len(b.aborts) > 0 {
		t.Errorf("%q %v", b.log, b.aborts)
	}
}

func TestOneInspectionAtATime(t *testing.T) {
	goOn := make(chan struct{})
	asked := make(chan struct{}, 100)
	b := newBench(t, 60*sec, 0, func(o *Options) {
		o.Ask = func(context.Context) ([][]byte, error) { asked <- struct{}{}; <-goOn; return nil, nil }
	})
	b.pending = []Waiting{waits("a", 100*sec)}
	for range 50 {
		b.Check(100 * sec) // would block for ever if it waited for Ask
	}
	<-asked
	close(goOn)
	b.wg.Wait()
	if len(asked) != 0 || len(b.log) != 1 {
		t.Errorf("%d more asks, log %q", len(asked), b.log)
	}
}

func TestCloseEndsAnInspection(t *testing.T) {
	asked := make(chan struct{})
	b := newBench(t, 60*sec, 80*sec, func(o *Options) {
		o.Ask = func(ctx context.Context) ([][]byte, error) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("Ask has no time limit")
			}
			close(asked)
			<-ctx.Done()
			return make([][]byte, 2), ctx.Err()
		}
	})
	b.pending = []Waiting{waits("a", 100*sec)}
	b.Check(100 * sec)
	<-asked
	b.Close()
	b.Check(200 * sec)
	b.Close()
	if len(b.log) > 0 || len(b.aborts) > 0 || b.snapshots != 1 {
		t.Errorf("log %q, aborts %v, %d snapshots", b.log, b.aborts, b.snapshots)
	}
}

func TestShutdownComesOnceAndEndsTheInspector(t *testing.T) {
	b := newBench(t, 60*sec, 70*sec, nil)
	b.want(t, b.at(waits("a", 61*sec)), "a", 1)
	b.want(t, b.at(waits("a", 70*sec)), "", 1)
	b.want(t, b.at(waits("a", 71*sec), waits("b", 61*sec)), "a b", 2)
	if !strings.HasPrefix(b.log[0], "ERROR ") || !strings.HasSuffix(b.log[0], "\nWill shutdown.") {
		t.Errorf("logged %q", b.log)
	}
	b.want(t, b.at(waits("a", 500*sec)), "", 2)
	const want = "stalled for longer than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (70 seconds): a (ALLREDUCE) has waited " +
		"for 71 seconds on rank 0; missing: rank 1; rank 1 on host h waits for nothing: it is computing or stuck " +
		"outside of Horovod"
	if len(b.aborts) != 1 || b.aborts[0].Error() != want {
		t.Errorf("aborts %q", b.aborts)
	}
}

// A blocked rank looks for a deadlock once all ranks in it have been blocked for long enough, and then again with each
// report.
func TestDeadlocksAreLookedFor(t *testing.T) {
	blocked := func(name string, since, blocked time.Duration) Waiting {
		w := waits(name, since)
		w.Blocked = blocked
		return w
	}
	other := []Waiting{blocked("b", 64*sec, 10*sec)}
	b := newBench(t, 60*sec, 0, func(o *Options) { o.Deadlocks = true })
	b.o.Ask = func(context.Context) ([][]byte, error) { b.asks++; return [][]byte{nil, encode(other, "", false)}, nil }
	b.want(t, b.at(blocked("a", 61*sec, 11*sec)), "a", 1)
	b.want(t, b.at(blocked("a", 63*sec, 13*sec)), "", 1)
	b.want(t, b.at(blocked("a", 64*sec, 14*sec)), "", 2)
	b.want(t, b.at(blocked("a", 65*sec, 15*sec)), "", 2)
	b.want(t, b.at(blocked("a", 66*sec, 2*sec)), "", 2) // something was submitted
	b.want(t, b.at(blocked("a", 128*sec, 14*sec)), "a", 3)
	if len(b.aborts) > 0 {
		t.Fatal(b.aborts)
	}
	other = []Waiting{blocked("b", 65*sec, 11*sec)}
	b.want(t, b.at(blocked("a", 129*sec, 15*sec)), "", 3)
	b.want(t, b.at(blocked("a", 189*sec, 75*sec)), "a", 4)
	if len(b.aborts) != 1 || !strings.HasPrefix(b.aborts[0].Error(),
		"deadlock: rank 0 on host h waits for a (ALLREDUCE), which rank 1 has not submitted; rank 1 ") {
		t.Errorf("aborts %v", b.aborts)
	}
	b.want(t, b.at(blocked("a", 500*sec, 400*sec)), "", 4)

	early := newBench(t, 60*sec, 0, func(o *Options) { o.Deadlocks = true })
	early.o.Ask = func(context.Context) ([][]byte, error) {
		early.asks++
		return [][]byte{nil, encode(other, "", true)}, nil
	}
	for n, step := range []struct{ blocked, asks int }{{13, 1}, {14, 2}, {20, 2}, {63, 2}, {64, 3}, {70, 3}} {
		w := blocked("a", 0, time.Duration(step.blocked)*sec) // never reported; "old" gets the notice
		if early.at(waits("old", 11*sec), w); early.asks != step.asks {
			t.Errorf("step %d: asked %d times after %d s", n, early.asks, step.blocked)
		}
	}

	off := newBench(t, 60*sec, 0, nil)
	off.want(t, off.at(blocked("a", 61*sec, 61*sec)), "a", 1)
	off.want(t, off.at(blocked("a", 64*sec, 64*sec)), "", 1)
}

// If a rank's list is too long, its marks tell what it waits for.
func TestLongAnswersStillTellWhatIsMissing(t *testing.T) {
	var many []Waiting
	for n := range 500 {
		many = append(many, waits(fmt.Sprint("t", n), time.Duration(n+1)*sec))
	}
	a, err := decode(encode(many, "", false))
	if err != nil {
		t.Fatal(err)
	}
	v := viewOf(a)
	for _, w := range many {
		if v.lacks(&w) {
			t.Errorf("it waits for %s", w.Name)
		}
	}
	if w := waits("t500", sec); !v.lacks(&w) || v.unknown != 0 {
		t.Errorf("it does not wait for t500; %d unknown", v.unknown)
	}
	for len(many) <= maxEntries+maxMarks {
		many = append(many, waits(fmt.Sprint("t", len(many)), sec))
	}
	if a, err = decode(encode(many, "", false)); err != nil {
		t.Fatal(err)
	}
	if v = viewOf(a); v.unknown != 1 {
		t.Errorf("%d unknown", v.unknown)
	}
}

// The Inspector looks at a slow execution when the time is over, but not every second from then on.
func TestSlowExecutionIsNotAskedAboutAllTheTime(t *testing.T) {
	b := newBench(t, 60*sec, 70*sec, nil)
	slow := func(s time.Duration) Waiting { w := waits("a", s); w.Phase = Executing; return w }
	b.want(t, b.at(slow(61*sec)), "a", 1)
	b.want(t, b.at(slow(71*sec)), "a", 2)
	for s := 72 * sec; s < 131*sec; s += sec {
		b.want(t, b.at(slow(s)), "", 2)
	}
	b.want(t, b.at(slow(131*sec)), "a", 3)
	if len(b.aborts) > 0 {
		t.Error(b.aborts)
	}
}

func TestPanicAborts(t *testing.T) {
	b := newBench(t, 60*sec, 0, func(o *Options) {
		o.Ask = func(context.Context) ([][]byte, error) { panic("broken") }
	})
	b.at(waits("a", 61*sec))
	b.at(waits("a", 200*sec))
	if len(b.aborts) != 1 || !strings.HasPrefix(b.aborts[0].Error(), "panic in the stall inspector of rank 0 on host "+
		"h: broken; in ") {
		t.Errorf("aborts %v", b.aborts)
	}
}

// Answers that came before the launcher was lost count.
func TestPartialAnswersCount(t *testing.T) {
	b := newBench(t, 60*sec, 0, func(o *Options) {
		o.Members = func(int) []int { return []int{0, 1, 2} }
		o.Ask = func(context.Context) ([][]byte, error) {
			return [][]byte{nil, encode(nil, "", false), nil}, errors.New("the launcher is gone")
		}
	})
	b.at(waits("a", 61*sec))
	if len(b.log) != 1 || !strings.Contains(b.log[0], "a (ALLREDUCE) has waited for 61 seconds on rank 0; missing: "+
		"rank 1; not all ranks could be asked: the launcher is gone\nMissing ranks:\nrank 1 on host h: [a]; it waits "+
		"for nothing") || strings.Contains(b.log[0], "rank 2") {
		t.Errorf("%q", b.log)
	}
}

// A rank that has refused a call has made that call, and does not wait for it. So no deadlock joins it with a rank that
// waits for the others' calls of that name, though the refusing rank waits for something that this rank has not
// submitted.
func TestARefusedCallIsNoDeadlock(t *testing.T) {
	const long = time.Minute
	x := Waiting{Name: "x", Op: "BROADCAST", Since: long, Blocked: long}
	y := Waiting{Name: "y", Op: "ALLREDUCE", Since: long, Blocked: long}
	members := func(int) []int { return []int{0, 1, 2} }
	for _, refused := range []bool{false, true} {
		views := []view{viewOf(answer{Waiting: []Waiting{x}}), viewOf(answer{Waiting: []Waiting{y}}), viewOf(answer{})}
		if refused {
			views[1] = viewOf(answer{Waiting: []Waiting{{Name: "x", Op: "BROADCAST", Since: long, Phase: Refused}, y}})
		}
		if dead := deadlock(views, members, new(Options).proof); (len(dead) == 0) != refused {
			t.Errorf("refused %v: %v", refused, dead)
		}
		all := diagnose(x, members(0), views)
		if missing := all.missing(nil); slices.Contains(missing, 1) == refused || !slices.Contains(missing, 2) {
			t.Errorf("refused %v: missing are %v", refused, missing)
		}
	}
}
