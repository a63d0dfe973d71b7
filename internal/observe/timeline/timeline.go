// Package timeline writes the life of each tensor in the engine to a file that Chrome's tracing page and Perfetto open:
// negotiation, operation, activities (Horovod's page "Analyze Performance"). The engine of rank 0 calls it from its
// driver and from the threads that enqueue, and a call must never make them wait. So a call only puts a small record
// into a bounded queue, without a lock and without allocating; if the queue is full the record is dropped and counted.
// A goroutine, which exists only while a file is open, does everything else.
//
//	engine ── queue ── trace.run: recorder (phases, pids, JSON) ── arrayFile
//
// The records are those of Horovod's timeline. The file is a valid JSON array at
// any time, also after the process has been killed; see arrayFile.
package timeline

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Timeline is a trace that can be switched on and off. All methods are safe on any goroutine. Start and Stop do file
// I/O and may block. The others never block, and while the timeline is off they cost one atomic load.
//
// The names, operations and activities given to its methods are kept after they return: do not change their bytes. A
// shape is copied.
//
// The events of one tensor come in this order; any of them may be missing, in
// particular those before the timeline was switched on:
//
//	NegotiateStart  Submitted  RankReady…  NegotiateEnd
//	OpStart  (ActivityStart  ActivityEnd)…  OpEnd
//
// The next NegotiateStart of a name may come before OpEnd, because another rank may be ahead; the next NegotiateEnd may
// not. Two operations of one name that run at the same time, in two process sets, need different names here.
type Timeline struct {
	current atomic.Pointer[trace]  // nil: off
	look    atomic.Pointer[func()] // see Watch
	lost    func(error)            // see OnLoss

	mu   sync.Mutex            // held by Start, Stop and Identify; only they set the fields below
	own  *Identity             // nil if rank 0 alone writes a file
	last atomic.Pointer[trace] // current's trace, or the last one before current became nil
}

// New makes a Timeline that is off.
func New() *Timeline { return new(Timeline) }

// Identity says which rank's file a timeline is. If each rank of a job writes a file, the files need it, because
// gorovod trace merge puts them together by it.
type Identity struct {
	Rank, Size int
	Host       string
	Job        string // the same on all ranks of a generation, and of no other job
	Generation uint64
}

// Identify makes the files that Start opens from now on name their rank, and hold what merging needs: this rank's own
// submissions, and the numbers of the operations. With nil they are like the files of Horovod's rank 0.
func (t *Timeline) Identify(own *Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = own
}

// Start opens the file at path, replaces its content, and switches the timeline on. With markCycles, CycleStart writes
// a mark. If another file is being written, Start completes it first; if it is the same file, only markCycles changes.
//
// The error names path if path cannot be written; then the earlier file goes on. If the earlier file cannot be
// completed, Start returns that error and the timeline is off.
func (t *Timeline) Start(path string, markCycles bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Not truncated yet, because it may be the current file. Not opened for writing only, because that blocks on a pipe
	// that nobody reads.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("start timeline: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("start timeline: %w", err)
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return fmt.Errorf("start timeline: %s is not a regular file", path)
	}
	if tr := t.current.Load(); tr != nil && os.SameFile(tr.info, info) {
		f.Close()
		tr.markCycles.Store(markCycles)
		return nil
	}
	if err := t.stop(); err != nil {
		f.Close()
		return err
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return fmt.Errorf("start timeline: %w", err)
	}
	tr, err := newTrace(f, queueSize, t.own)
	if err != nil {
		f.Close()
		return fmt.Errorf("start timeline: %w", err)
	}
	tr.path, tr.info = path, info
	tr.markCycles.Store(markCycles)
	// A trace that can no longer write switches the timeline off.
	tr.off = func() { t.current.CompareAndSwap(tr, nil) }
	if t.lost != nil {
		tr.lost = t.lost
	}
	t.last.Store(tr)
	t.current.Store(tr)
	guard.Go("the timeline", tr.broken, tr.run)
	guard.Go("the timeline's looks", tr.broken, func() { t.watch(tr) })
	return nil
}

// LookEvery is how often Watch's function is called while the timeline is on.
const LookEvery = time.Millisecond

// Watch makes the timeline call look every LookEvery while it is on. The engine uses it for changes that nothing
// signals. look must not block.
func (t *Timeline) Watch(look func()) { t.look.Store(&look) }

func (t *Timeline) watch(tr *trace) {
	tick := time.NewTicker(LookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-tr.done:
			return
		}
		if look := t.look.Load(); look != nil && t.current.Load() == tr {
			(*look)()
		}
	}
}

// OnLoss makes the timeline call lost, on a goroutine of its own, as soon as a file can no longer be written: once for
// each file. Call it before Start.
func (t *Timeline) OnLoss(lost func(error)) { t.lost = lost }

// Close is Stop, without an error that OnLoss's function has had.
func (t *Timeline) Close() error {
	err := t.Stop()
	if tr := t.last.Load(); tr != nil && tr.mourned.Load() {
		return nil
	}
	return err
}

// Stop switches the timeline off, and closes the file. The file has every event whose call returned before, except
// those counted by Dropped. The error is the first that writing met; then the file ends before it. Without a file, Stop
// does nothing.
func (t *Timeline) Stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop()
}

func (t *Timeline) stop() error {
	t.current.Store(nil)
	tr := t.last.Load()
	if tr == nil {
		return nil
	}
	if err := tr.stop(); err != nil {
		return fmt.Errorf("timeline: %w", err)
	}
	return nil
}

// On reports whether events are recorded. It is false after an error in writing.
func (t *Timeline) On() bool { return t.current.Load() != nil }

// Dropped is how many events are missing in the current file (if the timeline is off, in the last one) because the
// queue was full or there were too many tensors.
func (t *Timeline) Dropped() int64 {
	tr := t.last.Load()
	if tr == nil {
		return 0
	}
	return tr.dropped.Load()
}

// NegotiateStart says that the coordinator heard of the tensor for the first time. op is the operation's name in upper
// case, such as "ALLREDUCE".
func (t *Timeline) NegotiateStart(name, op string) {
	if tr := t.current.Load(); tr != nil {
		tr.put(negotiateStart, name, op, 0)
	}
}

// RankReady says that the member with this number in its process set is ready.
func (t *Timeline) RankReady(name string, setRank int) {
	if tr := t.current.Load(); tr != nil {
		tr.put(rankReady, name, "", setRank)
	}
}

// Submitted says that this rank, which has this number in its process set, is ready. Files without an Identity get that
// from RankReady alone.
func (t *Timeline) Submitted(name string, setRank int) {
	if tr := t.current.Load(); tr != nil && tr.own {
		tr.put(submitted, name, "", setRank)
	}
}

// Agreement says on what the members of a process set have agreed.
type Agreement struct {
	Set   int
	Order uint64 // the operation's place in the order of the set, the same on all members
	// Ahead: the members' data came with their announcements, and the result with the agreement. Then an operation may
	// end on one member before it begins on another.
	Ahead bool
}

// NegotiateEnd says that all members are ready, or that the tensor was refused.
func (t *Timeline) NegotiateEnd(name string, a Agreement) {
	if tr := t.current.Load(); tr != nil {
		tr.putAgreed(name, a)
	}
}

// OpStart says that the operation has begun for this tensor. op is as in NegotiateStart.
func (t *Timeline) OpStart(name, op string) {
	if tr := t.current.Load(); tr != nil {
		tr.put(opStart, name, op, 0)
	}
}

// ActivityStart says what the operation does now, for example MemcpyInFusionBuffer. It ends the activity before.
func (t *Timeline) ActivityStart(name, activity string) {
	if tr := t.current.Load(); tr != nil {
		tr.put(activityStart, name, activity, 0)
	}
}

// ActivityEnd ends the activity.
func (t *Timeline) ActivityEnd(name string) {
	if tr := t.current.Load(); tr != nil {
		tr.put(activityEnd, name, "", 0)
	}
}

// OpEnd ends the operation and its activity. The file shows dtype and shape; an invalid dtype stands for an operation
// without a tensor, such as a barrier.
func (t *Timeline) OpEnd(name string, dtype tensor.DType, shape tensor.Shape) {
	if tr := t.current.Load(); tr != nil {
		tr.putEnd(name, dtype, shape)
	}
}

// CycleStart marks the beginning of a negotiated batch, if Start was called with markCycles.
func (t *Timeline) CycleStart() {
	if tr := t.current.Load(); tr != nil && tr.markCycles.Load() {
		tr.put(cycleStart, "", "", 0)
	}
}
