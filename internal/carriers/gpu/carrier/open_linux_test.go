package carrier

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// slow is a system in which the making of a context, or the search for NCCL, lasts until it is told how that ends.
type slow struct {
	System
	began chan int
	ends  chan error
	call  string        // that is under way
	since time.Duration // for which it is
}

func newSlow() *slow {
	return &slow{began: make(chan int), ends: make(chan error), call: "cuInit of /usr/lib/libcuda.so.1", since: 1}
}

func (s *slow) Context(device int) (Context, error) {
	s.began <- device
	if err := <-s.ends; err != nil {
		return nil, err
	}
	return &counted{reached: make(map[cuda.Event]bool)}, nil
}

func (s *slow) Underway() (string, time.Duration) { return s.call, s.since }

// use uses a device on a goroutine of its own.
func use(d *Devices, device int) <-chan error {
	found := make(chan error, 1)
	go func() { found <- d.Usable(device) }()
	return found
}

// While a context is made, questions about tensors do not wait. Other users of the device do, for the same attempt.
func TestSlowContext(t *testing.T) {
	s := newSlow()
	d := New(s, Options{Deadline: time.Hour})
	first := use(d, 0)
	<-s.began
	if d.GiveBack(0, 1, 1, 0) {
		t.Error("memory of a device that is not in use is taken back")
	}
	_ = d.Refuse(&Tensor{})
	s.ends <- errors.New("no memory")
	if err := <-first; err == nil {
		t.Error("there is a device without a context")
	}
	second := use(d, 0) // tries again
	<-s.began
	third := use(d, 0)
	s.ends <- nil
	if err := <-second; err != nil {
		t.Error(err)
	}
	select {
	case err := <-third:
		if err != nil {
			t.Error(err)
		}
	case <-s.began:
		t.Error("two contexts are made")
	}
	if err := d.Usable(1); err == nil {
		t.Error("a process has two devices")
	}
}

// written is a log that several goroutines write.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// has waits until the log has a text.
func (w *written) has(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		all := w.text.String()
		w.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", text, all)
		}
	}
}

// A context that is too late counts as failed, also for those who ask later, and after it is there.
func TestLateContext(t *testing.T) {
	s, log := newSlow(), new(written)
	d := New(s, Options{Deadline: time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))})
	found := use(d, 0)
	<-s.began
	const why = "cuInit of /usr/lib/libcuda.so.1 has not returned for 4ms"
	if err := <-found; err == nil || !strings.Contains(err.Error(), why) {
		t.Error(err)
	}
	log.has(t, "has not returned for 1ms")
	s.ends <- nil
	if d.Takes(0) {
		t.Error("the late context is used")
	}
	log.has(t, "copied through host memory: "+why)
}

// The loader keeps its lock if a library hangs in it, so the program cannot go on.
func TestLoaderHangs(t *testing.T) {
	aborts, last := make(chan error, 1), make(chan error, 1)
	s := newSlow()
	s.call, s.since = "dlopen of libcuda.so.1", 2*time.Millisecond
	d := New(s, Options{Deadline: time.Millisecond, Abort: func(cause error) { aborts <- cause },
		End: func(cause error) { last <- cause }})
	found := use(d, 0)
	<-s.began
	const why = "dlopen of libcuda.so.1 has not returned for 4ms"
	if cause := <-aborts; !strings.Contains(cause.Error(), "rank 0 cannot go on: "+why) {
		t.Error(cause)
	}
	if err := <-found; err == nil || !strings.Contains(err.Error(), why) {
		t.Error(err)
	}
	if cause := <-last; !strings.Contains(cause.Error(), why) {
		t.Error(cause)
	}
	s.ends <- nil
}

// After an abort nobody waits for a context any more.
func TestAbortWithoutContext(t *testing.T) {
	s := newSlow()
	d := New(s, Options{Deadline: time.Hour})
	found := use(d, 0)
	<-s.began
	d.Abort(errors.New("rank 7 is dead"))
	d.Abort(errors.New("rank 8 is dead"))
	if err := <-found; err == nil || !strings.Contains(err.Error(), "is dead") {
		t.Error(err)
	}
	d.Close()
	s.ends <- nil
}

// If a search of an earlier world hangs, a new world does not search.
func TestStuckBefore(t *testing.T) {
	s := newSlow()
	s.since = 4*time.Hour + time.Second
	d := New(s, Options{Deadline: time.Hour})
	const why = "cuInit of /usr/lib/libcuda.so.1 has not returned for 4h0m1s"
	if err := d.Usable(0); err == nil || !strings.Contains(err.Error(), why) {
		t.Error(err)
	}
	s.call = "ncclGetVersion of libnccl.so.2" // which a context does not need
	found := use(d, 0)
	<-s.began
	s.ends <- nil
	if err := <-found; err != nil {
		t.Error(err)
	}
	if d.Takes(0) {
		t.Error("NCCL is searched for again")
	}
}

// without is a rank's System in which the search for NCCL hangs.
type without struct {
	*device
	hangs chan struct{}
}

func (w without) Library() (Library, error) {
	<-w.hangs
	return w.device.Library()
}

func (w without) Underway() (string, time.Duration) { return "ncclGetVersion of libnccl.so.2", 1 }

// If NCCL's library hangs on a rank, all ranks are told which call that is. In Mode Auto they go on without NCCL.
func TestNCCLHangs(t *testing.T) {
	for mode, says := range map[Mode]string{
		Auto: "because NCCL cannot carry them: rank 1: ncclGetVersion of libnccl.so.2 has not returned for 40ms",
		NCCL: "as GOROVOD_GPU=nccl asks for: rank 1: ncclGetVersion of libnccl.so.2 has not returned for 40ms",
	} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			hangs := make(chan struct{})
			_, ranks := world(t, 2, func(r int, d *device, o *Options) {
				if o.Mode = mode; r == 1 {
					o.Deadline = 10 * time.Millisecond
				}
			})
			ranks[1].devices.system = without{ranks[1].device, hangs}
			defer close(hangs)
			if ranks[1].devices.Takes(0) != (mode == NCCL) {
				t.Error("a rank is to submit tensors of the device only in Mode NCCL")
			}
			each(ranks, func(m *member) {
				err := m.outcome(sum(m, t, "x"))
				if mode == NCCL && (err == nil || !strings.Contains(err.Reason, says)) || mode == Auto && err != nil {
					t.Errorf("rank %d: %v", m.rank, err)
				}
			})
			if log := ranks[0].log.String(); mode == Auto && !strings.Contains(log, says) {
				t.Error(log)
			}
		})
	}
}

// If a call of CUDA does not return after an abort either, the process ends, with the cause.
func TestCallThatNeverReturns(t *testing.T) {
	aborts, last, hangs := make(chan error, 1), make(chan error, 1), make(chan struct{})
	var m *member
	_, ranks := world(t, 1, func(_ int, d *device, o *Options) {
		o.Mode, o.Deadline = NCCL, 200*time.Millisecond
		o.Abort = func(cause error) { aborts <- cause; m.devices.Abort(cause) }
		o.End = func(cause error) { last <- cause }
		d.making = func() { <-hangs }
	})
	m = ranks[0]
	defer close(hangs)
	en, err := m.Enqueue(sum(m, t, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer en.Release()
	const why = "rank 0 moves tensors of a device, and a call of CUDA or NCCL there has not returned for 200ms"
	if cause := <-aborts; !strings.Contains(cause.Error(), why) {
		t.Error(cause)
	}
	const end = "so this process cannot go on, and ends"
	if cause := <-last; !strings.Contains(cause.Error(), why) || !strings.HasSuffix(cause.Error(), end) {
		t.Error(cause)
	}
}

// A call that is none of the driver's, and the program's part in an allocation, are not blamed.
func TestWhoseCall(t *testing.T) {
	s := newSlow()
	s.since = time.Hour
	d := New(s, Options{Abort: func(error) {}})
	if call := d.watch.call(time.Now(), false); call != "a call of CUDA or NCCL" {
		t.Error(call)
	}
	s.since = time.Millisecond
	if call := d.watch.call(time.Now(), false); call != s.call {
		t.Error(call)
	}
	inside := func() bool { return d.watch.calls.Load()%2 == 1 }
	d.watch.enter()
	d.watch.outside(func() {
		if inside() {
			t.Error("the program's part counts as a call")
		}
		for d.watch.timing.Load() {
			time.Sleep(time.Millisecond)
		}
	})
	if !inside() || !d.watch.timing.Load() {
		t.Error("the call is forgotten")
	}
	d.watch.leave()
	d.watch.outside(func() {})
	if inside() {
		t.Error("a call without end")
	}
}

// A thread of the program that hangs in a call ends the job, and then the process.
func TestProgramsCallThatNeverReturns(t *testing.T) {
	aborts, last := make(chan error, 1), make(chan error, 1)
	var d *Devices
	s := newSlow()
	s.call = ""
	d = New(s, Options{Deadline: 20 * time.Millisecond, End: func(cause error) { last <- cause },
		Abort: func(cause error) { aborts <- cause; d.Abort(cause) }})
	for range 100 { // more than are noted at a time
		d.watch.programLeaves(d.watch.programEnters())
	}
	d.watch.programEnters()
	const why = "rank 0 moves tensors of a device, and a call of CUDA or NCCL there has not returned for 80ms"
	if cause := <-aborts; !strings.Contains(cause.Error(), why) {
		t.Error(cause)
	}
	if cause := <-last; !strings.Contains(cause.Error(), "so this process cannot go on") {
		t.Error(cause)
	}
}

// While the process is stopped, a call that is under way does not take time.
func TestStoppedProcess(t *testing.T) {
	aborts := make(chan error, 1)
	d := New(newSlow(), Options{Deadline: time.Minute, Abort: func(cause error) { aborts <- cause }})
	d.watch.born = time.Now().Add(-time.Hour)
	d.watch.threads[0].Store(1) // a call that began an hour ago, at the first look
	d.watch.time()
	time.AfterFunc(3*betweenQuestions/2, func() { d.watch.programLeaves(0) })
	for d.watch.timing.Load() {
		time.Sleep(time.Millisecond)
	}
	select {
	case cause := <-aborts:
		t.Error(cause)
	default:
	}
}

// A device that is stuck when the bin is closed keeps nobody waiting later.
func TestStuckBin(t *testing.T) {
	var b bin
	block := make(chan struct{})
	defer close(block)
	b.throw(func() { <-block })
	b.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * limit / aftermath { // longer than the limit, if each waits
			b.throw(func() {})
		}
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Error("each waits for the device")
	}
}
