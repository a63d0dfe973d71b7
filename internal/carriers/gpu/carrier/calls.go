package carrier

import (
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// inUse is the number of deadlines that a call may take if it makes no communicator. It is greater than 1, because a
// call that allocates memory may wait for the program's work on the device.
const inUse = 4

// enter notes that the driver is about to call CUDA or NCCL, until leave.
func (w *watch) enter() {
	if w.depth++; w.depth > 1 || w.devices.options.Abort == nil {
		return
	}
	w.calls.Add(1)
	w.time()
}

func (w *watch) leave() {
	if w.depth--; w.depth == 0 && w.devices.options.Abort != nil {
		w.calls.Add(1)
	}
}

func (w *watch) timeCalls() {
	o := &w.devices.options
	calls, since := w.calls.Load(), time.Now()
	var told bool      // that a call is late
	var seen time.Time // the begin of the program's oldest call, at the look before
	var lost time.Time // when the abort was seen; zero: there is none
	for {
		time.Sleep(betweenQuestions)
		now := w.calls.Load()
		if now != calls {
			calls, since = now, time.Now()
		}
		began, longest := w.program(), inUse*o.Deadline
		programs := true
		if oldest := began; oldest != seen { // it counts from the first look on, else a stop of the process would count
			seen, began = oldest, time.Now()
			if oldest.IsZero() {
				began = oldest
			}
		}
		if now%2 == 1 && (began.IsZero() || since.Add(w.longest()).Before(began.Add(longest))) {
			began, longest, programs = since, w.longest(), false // the driver's call is late first
		}
		if began.IsZero() {
			if w.rests() {
				return
			}
			told = false
			continue
		}
		cause, lasts := w.devices.aborted(), time.Since(began)
		if cause != nil && lost.IsZero() {
			lost = time.Now()
		}
		switch {
		case cause != nil && lasts > inUse*o.Deadline && time.Since(lost) > o.Deadline && o.End != nil:
			o.End(fmt.Errorf("%w; %s has not returned for %v, so this process cannot go on, and ends", cause,
				w.call(began, programs), lasts.Round(time.Millisecond)))
			return
		case cause == nil && lasts > longest && !told:
			told = true
			o.Abort(fmt.Errorf("%s moves tensors of a device, and %s there has not returned for %v; see what "+
				"NCCL_DEBUG=INFO prints there, or set GOROVOD_GPU=staged to do without NCCL", o.Describe(o.Rank),
				w.call(began, programs), longest))
		}
	}
}

// programEnters notes that a thread of the program is about to call CUDA, until programLeaves gets the result.
func (w *watch) programEnters() (thread int) {
	if w.devices.options.Abort == nil {
		return -1
	}
	now := int64(time.Since(w.born)) + 1
	for i := range w.threads {
		if w.threads[i].CompareAndSwap(0, now) {
			w.time()
			return i
		}
	}
	return -1 // the other threads are watched
}

func (w *watch) programLeaves(thread int) {
	if thread >= 0 {
		w.threads[thread].Store(0)
	}
}

// program returns when the oldest call of the program's threads began; zero if there is none.
func (w *watch) program() (oldest time.Time) {
	first := int64(0)
	for i := range w.threads {
		if began := w.threads[i].Load(); began != 0 && (first == 0 || began < first) {
			first = began
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return w.born.Add(time.Duration(first))
}

// time makes timeCalls run.
func (w *watch) time() {
	if !w.timing.Load() && w.timing.CompareAndSwap(false, true) {
		guard.Go("the watch over calls of CUDA and NCCL", w.devices.options.Abort, w.timeCalls)
	}
}

// call names what the driver has been in since a time, as far as that is known: a call of another age is another
// thread's. Calls of the program's threads have no names.
func (w *watch) call(since time.Time, programs bool) string {
	call, lasts := w.devices.system.Underway()
	if call == "" || programs || (lasts-time.Since(since)).Abs() > 2*betweenQuestions {
		return "a call of CUDA or NCCL"
	}
	return call
}

// outside has f run as no call of CUDA or NCCL, although the driver is in one.
func (w *watch) outside(f func()) {
	if w.depth > 0 && w.devices.options.Abort != nil {
		w.calls.Add(1)
		defer func() {
			w.calls.Add(1)
			w.time() // timeCalls may have ended meanwhile
		}()
	}
	f()
}

// rests reports whether timeCalls is to end. If a call begins meanwhile, either its thread sees that nobody times it,
// or rests sees the call.
func (w *watch) rests() bool {
	w.timing.Store(false)
	return w.calls.Load()%2 == 0 && w.program().IsZero() || !w.timing.CompareAndSwap(false, true)
}

// longest returns the longest time that a call may take.
func (w *watch) longest() time.Duration {
	if w.making.Load() {
		return w.devices.options.Deadline
	}
	return inUse * w.devices.options.Deadline
}
