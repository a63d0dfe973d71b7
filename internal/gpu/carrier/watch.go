package carrier

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/gpu/cuda"
	"github.com/gorovod/gorovod/internal/guard"
)

// watch ends the job for two faults that the driver cannot notice itself:
//
//	timeCalls  a call of CUDA or NCCL does not return. The driver, or a thread that submits a tensor, hangs in the call,
//	           so the other ranks wait for this rank, whose process is alive
//	ask        an operation that has ended for the program fails while the device still has it (Options.Async).
//	           Nobody else asks NCCL for that before the lane's next operation, which may never come. ask also learns
//	           when such operations are over on the device, for lanes that end (settled)
//
// Each is a goroutine that looks every betweenQuestions, and ends when it has nothing to watch. timeCalls calls neither
// CUDA nor NCCL, and takes no lock that others hold over such a call, because it would hang where the driver does. ask
// may hang.
type watch struct {
	devices *Devices
	depth   int              // calls of enter without their leave; the driver's
	calls   atomic.Uint64    // odd while the driver is inside
	making  atomic.Bool      // the driver makes a communicator
	timing  atomic.Bool      // timeCalls runs
	threads [64]atomic.Int64 // when a call of the program began, in ns since born, plus 1; 0: none
	born    time.Time

	mu      sync.Mutex // not held over calls of CUDA or NCCL
	lanes   map[*Lane]watched
	asking  bool  // ask runs
	subject *Lane // whose communicator and event ask uses now

	// doubtful says that the job fails, or will, and that nobody knows the outcome of an operation that has ended for
	// the program. It is set before the lane leaves lanes.
	doubtful atomic.Bool

	hurries atomic.Bool   // somebody waits for ask to settle all lanes
	hurry   chan struct{} // ends ask's pause
}

// watched is what ask uses of a lane.
type watched struct {
	comm    Comm
	context Context
	done    cuda.Event
	issued  time.Time // the lane's last operation
}

// betweenQuestions is the time between two looks. For the time calm after an operation, ask does not ask whether that
// has ended, because most lanes have another operation by then.
const (
	betweenQuestions = 100 * time.Millisecond
	betweenHurried   = time.Millisecond // while somebody waits for the answer
	calm             = time.Second
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

// add notes that the lane has issued an operation that has ended for the program.
func (w *watch) add(l *Lane) {
	if w.devices.options.Abort == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes == nil {
		w.lanes = make(map[*Lane]watched)
	}
	w.lanes[l] = watched{l.comm, l.place.context, l.done, time.Now()}
	if w.devices.aborted() != nil {
		w.doubtful.Store(true)
	}
	if !w.asking {
		w.asking = true
		guard.Go("the watch over operations of NCCL", w.devices.options.Abort, w.ask)
	}
}

// doubt notes that the job is being aborted, which ends the operations that the device still has.
func (w *watch) doubt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lanes) > 0 {
		w.doubtful.Store(true)
	}
}

// remove forgets a lane, which fails if it is not settled, and reports whether ask has stopped using its event. It
// waits for that up to drainTime, because ask may hang.
func (w *watch) remove(l *Lane) bool {
	for deadline := time.Now().Add(drainTime); ; time.Sleep(betweenLooks) {
		w.mu.Lock()
		if _, watches := w.lanes[l]; watches {
			w.doubtful.Store(true)
			delete(w.lanes, l)
		}
		asked := w.subject == l
		w.mu.Unlock()
		if !asked || time.Now().After(deadline) {
			return !asked
		}
	}
}

// settled reports whether the device has done all operations of a lane that have ended for the program. From the first
// question on, ask hurries.
func (w *watch) settled(l *Lane) bool {
	w.mu.Lock()
	_, watches := w.lanes[l]
	w.mu.Unlock()
	if watches && !l.leaves.Swap(true) {
		w.wake()
	}
	return !watches
}

// allSettled is settled for all lanes.
func (w *watch) allSettled() bool {
	w.mu.Lock()
	n := len(w.lanes)
	w.mu.Unlock()
	if hurried := w.hurries.Swap(n > 0); n > 0 && !hurried {
		w.wake()
	}
	return n == 0
}

func (w *watch) wake() {
	select {
	case w.hurry <- struct{}{}:
	default: // it is awake
	}
}

// pause waits until the next questions.
func (w *watch) pause() {
	most := betweenQuestions
	w.mu.Lock()
	for l := range w.lanes {
		if l.leaves.Load() || w.hurries.Load() {
			most = betweenHurried
		}
	}
	w.mu.Unlock()
	select {
	case <-w.hurry:
	case <-time.After(most):
	}
}

func (w *watch) ask() {
	for {
		w.pause()
		lanes := w.all()
		if lanes == nil {
			return
		}
		for _, l := range lanes {
			if cause := w.look(l); cause != nil && w.devices.aborted() == nil {
				w.devices.options.Abort(cause)
			}
		}
	}
}

// all returns the lanes to ask about. If there are none, ask has to end.
func (w *watch) all() (lanes []*Lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.lanes {
		lanes = append(lanes, l)
	}
	w.asking = lanes != nil
	return lanes
}

// look asks about a lane, and forgets the lane if the answer is final. An error ends the job.
func (w *watch) look(l *Lane) error {
	w.mu.Lock()
	at, watches := w.lanes[l]
	if !watches {
		w.mu.Unlock()
		return nil
	}
	w.subject = l
	w.mu.Unlock()
	ended, err := at.look(l.leaves.Load() || w.hurries.Load())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subject = nil
	now, watches := w.lanes[l]
	if !watches {
		return nil // the lane ends, so its failure no longer matters
	}
	if err != nil {
		w.doubtful.Store(true)
		delete(w.lanes, l)
		return l.failed("an operation of NCCL", err)
	}
	if ended && now.issued.Equal(at.issued) { // else there is another operation
		delete(w.lanes, l)
	}
	return nil
}

// look reports whether the operation has ended, and how NCCL has failed. It may hang.
func (at *watched) look(hurries bool) (ended bool, err error) {
	if _, err = at.comm.Ready(); err != nil || !hurries && time.Since(at.issued) < calm {
		return false, err
	}
	return at.context.Reached(at.done)
}
