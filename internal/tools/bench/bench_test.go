package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	s := newStat([]float64{5, 1, 4, 2, 3})
	if want := (Stat{5, 3, 1.4, 4.6}); s.N != want.N || math.Abs(s.Median-want.Median)+math.Abs(
		s.P10-want.P10)+math.Abs(s.P90-want.P90) > 1e-12 {
		t.Errorf("%+v, want %+v", s, want)
	}
	if s := newStat([]float64{7}); s != (Stat{1, 7, 7, 7}) {
		t.Errorf("of one sample: %+v", s)
	}
	if s := newStat([]float64{4, 2}); s.Median != 3 {
		t.Errorf("of two: %+v", s)
	}
	if r := (Stat{9, 2, 1, 4}).rate(8); r != (Stat{9, 4, 2, 8}) {
		t.Errorf("rate %+v", r)
	}
}

func TestBERTLarge(t *testing.T) {
	sizes, sum := bertLarge(), 0
	for _, n := range sizes {
		sum += n
	}
	if len(sizes) != 398 || sum != 336226108 {
		t.Errorf("%d tensors of %d floats", len(sizes), sum)
	}
}

func TestResNet50(t *testing.T) {
	sizes := resNet50()
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	if len(sizes) != 161 || sum != 25557032 || sizes[0] != 1000 || sizes[1] != 2048000 || sizes[160] != 9408 {
		t.Errorf("%d tensors, %d floats: %v", len(sizes), sum, sizes)
	}
}

func TestSizes(t *testing.T) {
	for _, o := range []options{{MaxSize: 256}, {MaxSize: 256, Quick: true}, {MaxSize: 1}, {MaxSize: 1, Quick: true},
		{tiny: true}} {
		sizes := o.sizes()
		if !slices.Contains(sizes, mebibyte) || sizes[0] != 4 || !slices.IsSorted(sizes) ||
			sizes[len(sizes)-1] > max(o.MaxSize, 1)<<20 {
			t.Errorf("%+v: %v", o, sizes)
		}
	}
	if o := (options{MaxSize: 256}); len(o.sizes()) != 14 {
		t.Errorf("%v", o.sizes())
	}
}

func TestOrders(t *testing.T) {
	for _, o := range []*options{{MaxSize: 4, NumProc: 2}, {NumProc: 1, tiny: true}} {
		for _, task := range o.tasks() {
			mode, sizes, reps, inner, err := parseOrder(task.order(9))
			if err != nil || mode != task.mode || !reflect.DeepEqual(sizes, task.sizes) || reps != 9 ||
				inner != task.inner {
				t.Errorf("%+v became %v %v %d %d, %v", task, mode, sizes, reps, inner, err)
			}
			if task.machine() && task.mode != modeAdd && o.NumProc == 1 {
				t.Errorf("%s on one rank", task.mode)
			}
		}
	}
	for _, line := range []string{"", "run", "run allreduce 1 1", "walk allreduce 1 1 1", "run allreduce 0 1 1",
		"run allreduce 1,x 1 1", "run allreduce 1 0 1", "run allreduce 1 1 y"} {
		if _, _, _, _, err := parseOrder(line); err == nil {
			t.Errorf("%q is an order", line)
		}
	}
}

func TestServeAnswersErrorsToo(t *testing.T) {
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serve(there, func(mode string, sizes []int, reps, inner int) ([]int64, error) {
			if mode == "bad" {
				return nil, errors.New("two\nlines")
			}
			return []int64{int64(sizes[0]), int64(reps), int64(inner)}, nil
		})
	}()
	for _, c := range [][2]string{{"run x 3 4 5\n", "ok 3 4 5\n"}, {"run bad 1 1 1\n", "error two lines\n"},
		{"what\n", "error \"what\\n\" is no order\n"}} {
		io.WriteString(here, c[0])
		b := make([]byte, 100)
		n, _ := here.Read(b)
		if string(b[:n]) != c[1] {
			t.Errorf("%q: %q", c[0], b[:n])
		}
	}
	here.Close()
	if err := <-done; err != nil {
		t.Errorf("at the end: %v", err)
	}
}

func TestTakeTimes(t *testing.T) {
	slowest := make([]float64, 3)
	for _, line := range []string{"ok 5 0 9\n", "ok 7 0 2\n"} {
		if err := takeTimes(line, slowest); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(slowest, []float64{7, 1, 9}) {
		t.Errorf("%v", slowest)
	}
	for line, want := range map[string]string{"error no memory\n": "no memory", "ok 1 2\n": "2 times for 3",
		"ok 1 2 x\n": `"x" is no time`, "ok 1 2 -3\n": "no time", "\n": ""} {
		if err := takeTimes(line, slowest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// fake is a contender of one rank that answers each order with the time from f, or hangs up if that is below 0.
func fake(t *testing.T, name string, f func(mode string, reps int) int64) *contender {
	t.Helper()
	c, err := newContender(t.TempDir(), name, "", 1, modeAllreduce)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.hangUp)
	c.ended = make(chan struct{})
	go func() {
		conn, err := net.Dial("unix", c.socket())
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "hello 0\n")
		serve(conn, func(mode string, _ []int, reps, _ int) ([]int64, error) {
			ns := f(mode, reps)
			if ns < 0 {
				conn.Close()
			}
			return slices.Repeat([]int64{ns}, reps), nil
		})
	}()
	if err := c.greet(context.Background()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestScheduleTakesTurnsAndLeavesOutWhoFails(t *testing.T) {
	var mu sync.Mutex // guards what both ranks change
	var order []string
	turns := 0
	a := fake(t, "a", func(string, int) int64 {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, "a")
		return 2e9
	})
	b := fake(t, "b", func(_ string, reps int) int64 {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, "b")
		if turns++; turns > 3 {
			return -1
		}
		return 1e9
	})
	var said []string
	looks := []float64{1, 1.1, 1.9, 1.0} // so only the first round is in the fast mode
	cores := func() float64 {
		look := looks[0]
		looks = looks[1:]
		return look
	}
	s := &schedule{all: []*contender{a, b}, most: 9, tell: func(format string,
		_ ...any) {
		said = append(said, format)
	}, cores: cores, strangers: func() float64 { return 0 }}
	one := &task{TaskAllreduce, modeAllreduce, []int{1}, 2}
	for _, c := range s.all {
		s.series = append(s.series, &series{task: one, peer: c})
	}
	if n := s.run(context.Background(), time.Now().Add(time.Hour), 3); n != 3 {
		t.Errorf("%d rounds", n)
	}
	// One repetition each, the warm-up, then three rounds, which begin with a, b and a; b dies in its fourth turn.
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(order, ""); got != "abababbaa" {
		t.Errorf("order %s", got)
	}
	if b.failure == nil || a.failure != nil || len(s.series[1].samples) == 0 || s.series[1].samples[0] != 0.5 {
		t.Errorf("failures %v, %v, samples %v", a.failure, b.failure, s.series[1].samples)
	}
	if x := s.series[0]; len(x.fast) == 0 || len(x.samples) != 3*len(x.fast) {
		t.Errorf("%d of %d samples are of the one fast round of three", len(x.fast), len(x.samples))
	}
	if n := s.run(context.Background(), time.Now().Add(-time.Second), 3); n != 0 {
		t.Errorf("%d rounds after the deadline", n)
	}
}

// Figures that were measured before the time was over are shown, and marked.
func TestTimeIsOverEarly(t *testing.T) {
	slow := func(string, int) int64 { time.Sleep(60 * time.Millisecond); return 1e6 }
	a, b := fake(t, PeerGo, slow), fake(t, peerGloo, slow)
	s := &schedule{all: []*contender{a, b}, most: 9, tell: func(string, ...any) {}, cores: func() float64 { return 1 },
		strangers: func() float64 { return 0 }}
	for _, size := range []int{1, 1024} {
		for _, c := range s.all {
			s.series = append(s.series, &series{task: &task{TaskAllreduce, modeAllreduce, []int{size}, 1}, peer: c})
		}
	}
	s.series[1].task, s.series[3].task = s.series[0].task, s.series[2].task
	r := &Report{Version: reportVersion, Ranks: 2, Peers: []Peer{{PeerGo, ""}, {peerGloo, ""}}}
	r.Rounds = s.run(context.Background(), time.Now().Add(50*time.Millisecond), 3) // the first task takes longer
	r.conclude(s)
	if r.Rounds != 0 || len(r.Results) != 2 || !r.Results[0].Early || r.Results[1].Bytes != 4 {
		t.Errorf("%d rounds, %+v", r.Rounds, r.Results)
	}
	var text bytes.Buffer
	if err := r.table(&text); err != nil || !strings.Contains(text.String(), "~1.00 ms (1.00 ms … 1.00 ms)") ||
		!strings.Contains(text.String(), "  ~ time was over") {
		t.Errorf("%v: %s", err, &text)
	}
	if err := r.lost(); err == nil || !strings.Contains(err.Error(), "give it more with --time") {
		t.Error(err)
	}
	s.series[0].samples, s.series[1].samples = []float64{1e-3}, nil
	r.conclude(s)
	if r.Results[0].Early || !r.Results[1].Early {
		t.Errorf("%+v", r.Results)
	}
}

func TestDeadline(t *testing.T) {
	begin := time.Now()
	twelve := 12.0
	for _, c := range []struct {
		o              options
		start, seconds float64
	}{{options{}, 30, 120}, {options{Quick: true}, 23, 43}, {options{Quick: true, Time: &twelve}, 4, 12},
		{options{Time: &twelve}, 30, 33}} {
		if got := c.o.deadline(begin, begin.Add(time.Duration(c.start*1e9))).Sub(begin).Seconds(); got != c.seconds {
			t.Errorf("%+v: %v s", c, got)
		}
	}
}

func TestPlan(t *testing.T) {
	s := &schedule{most: 100}
	for _, c := range []struct {
		slice, rep, cost float64
		want             turn
	}{
		{1, 1e-6, 1e-6, turn{1000, 100}},
		{1, 1e-3, 0.02, turn{10, 40}},
		{1, 0.02, 0.02, turn{1, 49}},
		{1e-3, 9e-3, 9e-3, turn{2, 10}},
		{1e-3, 9e-3, 0.1, turn{2, 10}}, // a slow check does not make the work long
		{1e-3, 11e-3, 11e-3, turn{1, 1}},
		{1, 0.1, 0.1, turn{0, 10}},
		{1, 30, 30, turn{0, 1}},
	} {
		if got := s.plan(c.slice, &series{rep: c.rep, cost: c.cost}); got != c.want {
			t.Errorf("%v s of %v s, in all %v: %+v, want %+v", c.slice, c.rep, c.cost, got, c.want)
		}
	}
}

func TestWhatATurnBeginsWithDoesNotCount(t *testing.T) {
	c := fake(t, "a", func(_ string, reps int) int64 { return int64(1e6 * reps) })
	x := &series{task: &task{TaskAllreduce, modeAllreduce, []int{1}, 2}, peer: c}
	x.take(context.Background(), &schedule{}, turn{lead: 3, reps: 2}, true)
	if !slices.Equal(x.samples, []float64{2.5e-3, 2.5e-3}) || x.rep != 5e-3 || x.cost <= 0 {
		t.Errorf("samples %v, a repetition %v s, with its share of the turn %v s", x.samples, x.rep, x.cost)
	}
	x.take(context.Background(), &schedule{}, turn{reps: 1}, false)
	if len(x.samples) != 2 || x.rep != 1e-3 {
		t.Errorf("samples %v, a repetition %v s", x.samples, x.rep)
	}
}

func TestConclude(t *testing.T) {
	add := &task{modeAdd, modeAdd, []int{100}, 1}
	mib := &task{TaskAllreduce, modeAllreduce, []int{mebibyte / 4}, 1}
	ours, theirs := &contender{name: PeerGo}, &contender{name: peerOpenMPI}
	r := &Report{Version: reportVersion, Ranks: 2, Rounds: 1, Peers: []Peer{{PeerGo, ""}, {peerOpenMPI, ""}}}
	s := &schedule{modes: []float64{2, 1, 1}, series: []*series{
		{task: add, peer: ours, samples: []float64{3}, fast: []float64{1.5}},
		{task: mib, peer: ours, samples: []float64{115e-6}, fast: []float64{10e-6}},
		{task: mib, peer: theirs, samples: []float64{230e-6}, fast: []float64{115e-6}},
	}}
	r.conclude(s)
	// Two ranks move 3·100 bytes each in 3 s.
	if r.Limits.AddTraffic.Median != 200 || r.Limits.Allreduce != 50 || r.Limits.Mode != 2 || r.Limits.TCP != nil {
		t.Errorf("limits %+v", r.Limits)
	}
	if l := r.Limits.TwoCores; l == nil || l.Median != 1 || r.fastRounds() != 1 || !reflect.DeepEqual(r.Modes,
		[]Round{{2, false}, {1, true}}) {
		t.Errorf("two cores %+v, modes %+v", l, r.Modes)
	}
	if f := r.Fast; f == nil || f.Rounds != 1 || f.Limits.Mode != 1 || f.Limits.Allreduce != 100 ||
		f.Results[0].Time.Median != 10e-6 || f.Results[0].Ratios[peerOpenMPI] != 11.5 {
		t.Errorf("fast mode %+v", f)
	}
	x := result(r.Results, PeerGo, TaskAllreduce, mebibyte)
	if x == nil || x.Ratios[peerOpenMPI] != 2 || len(x.Ratios) != 1 || x.OfLimit != x.AlgBW/50 || x.BusBW != x.AlgBW {
		t.Errorf("%+v", x)
	}
	if err := r.lost(); err != nil {
		t.Error(err)
	}
	r.Failed = []Skipped{{"gloo", "why"}}
	if err := r.lost(); err == nil || !strings.Contains(err.Error(), "gloo failed") {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := r.table(&b); err != nil || !strings.Contains(b.String(), "FAILED: why") || !strings.Contains(b.String(),
		"mode factor") ||
		!strings.Contains(b.String(), "In the fast mode, 1 of 2 rounds") {
		t.Errorf("%v %s", err, &b)
	}
	// If all rounds had one mode, there is no second table.
	r = &Report{Version: reportVersion, Ranks: 2, Peers: r.Peers}
	s.modes = []float64{1, 1, 1}
	r.conclude(s)
	if r.Fast != nil || r.fastRounds() != 2 {
		t.Errorf("all rounds are fast: %+v", r.Fast)
	}
}

func TestFast(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		want          bool
	}{{1, 1, true}, {0.97, 1.2, true}, {1, 1.5, false}, {1.5, 1, false}, {2, 2, false}, {0, 0, false}} {
		if fast(c.before, c.after) != c.want {
			t.Errorf("%v and %v: %v", c.before, c.after, !c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 1.234: "1.23", 12.34: "12.3", 123.4: "123",
		1234: "1234"} {
		if got := figures(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{1.5e-6: "1.50 µs", 2e-3: "2.00 ms", 3: "3.00 s"} {
		if got := seconds(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for n, want := range map[int]string{4: "4 B", 4096: "4 KiB", 1 << 28: "256 MiB", 1 << 32: "4096 MiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestKnobsHoldNoSecret(t *testing.T) {
	got := knobs([]string{"HOROVOD_SECRET_KEY=1", "PATH=/bin", "HOROVOD_RANK=1", "GOROVOD_TRANSPORT=tcp"})
	if want := []string{"GOROVOD_TRANSPORT=tcp", "HOROVOD_RANK=1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTooLittleMemory(t *testing.T) {
	if availableBytes() == 0 {
		t.Skip("this system does not tell its memory")
	}
	if err := (&options{NumProc: 1024}).enoughMemory(1<<30, 5); err == nil || !strings.Contains(err.Error(),
		"--max-size") {
		t.Errorf("5 contenders of 1024 ranks with 4 GiB each: %v", err)
	}
	if err := (&options{NumProc: 1}).enoughMemory(1, 0); err != nil {
		t.Errorf("no contender: %v", err)
	}
}
