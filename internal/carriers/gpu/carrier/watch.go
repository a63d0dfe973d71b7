package carrier

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
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
