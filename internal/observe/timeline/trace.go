package timeline

import (
	"fmt"
	"io/fs"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

const (
	// queueSize is how many events can wait for the writer (8 MiB). Thousands of tensors cause that many within pause.
	queueSize = 1 << 16
	// pause is how long the writer lets events gather. A crash loses at most this much, and a busy engine does not wake
	// the writer for every event.
	pause = 10 * time.Millisecond
	// drainTime is how long the last drain waits for a producer that was descheduled between claim and publish.
	drainTime = 100 * time.Millisecond
	// stopTime is how long stop waits for a file system that hangs.
	stopTime = 10 * time.Second
)

// trace is one file from Start to Stop: a queue, and the goroutine that empties it.
type trace struct {
	path       string
	info       fs.FileInfo
	own        bool      // the file has an Identity
	began      time.Time // time 0 of the file is its monotonic reading
	markCycles atomic.Bool
	off        func()      // detaches the trace from producers
	lost       func(error) // hears of an error before stop
	mourned    atomic.Bool // lost has been called

	queue   *queue
	dropped atomic.Int64
	idle    atomic.Bool   // the writer sleeps until it is woken
	wake    chan struct{} // capacity 1
	quit    chan struct{} // closed by stop
	done    chan struct{} // closed when the writer has ended and the file is closed
	err     error         // valid after done
	stopped bool          // guarded by Timeline.mu

	// Owned by the writer:
	rec   *recorder
	told  int64 // how many events were dropped, as the file last said
	timer *time.Timer
}

// newTrace writes the head of an empty file, which is valid from then on. It owns f if there is no error. The caller
// sets off, and starts run.
func newTrace(f file, size int, own *Identity) (*trace, error) {
	out, err := newArrayFile(f)
	if err != nil {
		return nil, err
	}
	tr := &trace{
		own:   own != nil,
		began: time.Now(),
		off:   func() {},
		lost:  func(error) {},
		queue: newQueue(size),
		wake:  make(chan struct{}, 1),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
		timer: time.NewTimer(pause),
	}
	tr.rec = newRecorder(out, tr.began, own)
	if err := out.flush(); err != nil {
		return nil, err
	}
	return tr, nil
}

// put queues an event. Any goroutine may call it; it never blocks.
func (tr *trace) put(k kind, name, text string, rank int) {
	at := int64(time.Since(tr.began))
	c, pos := tr.queue.claim(k)
	if c == nil {
		tr.dropped.Add(1)
		return
	}
	c.at, c.kind, c.name, c.text, c.rank = at, k, name, text, int32(rank)
	c.publish(pos)
	tr.rouse()
}

// putAgreed is put for negotiateEnd.
func (tr *trace) putAgreed(name string, a Agreement) {
	at := int64(time.Since(tr.began))
	c, pos := tr.queue.claim(negotiateEnd)
	if c == nil {
		tr.dropped.Add(1)
		return
	}
	c.at, c.kind, c.name = at, negotiateEnd, name
	c.rank, c.order, c.ahead = int32(a.Set), a.Order, a.Ahead
	c.publish(pos)
	tr.rouse()
}

// putEnd is put for opEnd.
func (tr *trace) putEnd(name string, dtype tensor.DType, shape tensor.Shape) {
	at := int64(time.Since(tr.began))
	c, pos := tr.queue.claim(opEnd)
	if c == nil {
		tr.dropped.Add(1)
		return
	}
	c.at, c.kind, c.name, c.dtype = at, opEnd, name, dtype
	c.ndim = uint8(min(len(shape), maxDims+1))
	copy(c.dims[:], shape)
	c.publish(pos)
	tr.rouse()
}

// rouse wakes the writer if it sleeps, which it does only after a time without events.
func (tr *trace) rouse() {
	if tr.idle.Load() && tr.idle.CompareAndSwap(true, false) {
		select {
		case tr.wake <- struct{}{}:
		default:
		}
	}
}

// broken ends the trace after a panic, which must not end the training.
func (tr *trace) broken(err error) {
	tr.off()
	tr.rec.out.abandon()
	tr.err = fmt.Errorf("writing %s: %w", tr.path, err)
}

// run is the writer's goroutine. It writes queued events until stop is called or the file cannot be written.
func (tr *trace) run() {
	defer close(tr.done)
	defer guard.Recover("the timeline", tr.broken) // runs before done is closed
	defer tr.timer.Stop()
	for {
		some := tr.drain()
		if tr.rec.err != nil {
			tr.off()
			tr.rec.out.abandon()
			tr.err = tr.rec.err
			tr.mourned.Store(true)
			tr.lost(tr.err)
			return
		}
		if !some {
			if tr.sleep() {
				break
			}
		}
		tr.timer.Reset(pause)
		select {
		case <-tr.timer.C:
			continue
		case <-tr.quit:
		}
		break
	}
	tr.finish()
}

// sleep returns when an event was queued since the last drain. quit: stop was called.
func (tr *trace) sleep() (quit bool) {
	tr.idle.Store(true)
	// A producer that did not see idle has published before this look.
	if tr.queue.front() != nil {
		tr.idle.Store(false)
		return false
	}
	select {
	case <-tr.wake:
		return false
	case <-tr.quit:
		return true
	}
}

// drain records and writes the published events, and reports whether there were any.
func (tr *trace) drain() (some bool) {
	for e := tr.queue.front(); e != nil; e = tr.queue.front() {
		tr.rec.record(e)
		tr.queue.pop()
		some = true
		if tr.rec.err != nil {
			return true
		}
	}
	tr.queue.release()
	if tr.dropped.Load() != tr.told {
		tr.rec.freeCrowd()
	}
	tr.dropped.Add(tr.rec.skipped)
	tr.rec.skipped = 0
	if n := tr.dropped.Load(); n != tr.told {
		tr.rec.tell(n)
		tr.told = n
	}
	if err := tr.rec.out.flush(); err != nil && tr.rec.err == nil {
		tr.rec.err = err
	}
	return some
}

// finish drains the queue for the last time, when producers add no more, and completes the file.
func (tr *trace) finish() {
	for deadline := time.Now().Add(drainTime); ; runtime.Gosched() {
		tr.drain()
		if tr.rec.err != nil || tr.queue.claimed() == 0 {
			break
		}
		if time.Now().After(deadline) {
			tr.dropped.Add(tr.queue.claimed())
			tr.drain()
			break
		}
	}
	if tr.err = tr.rec.err; tr.err != nil {
		tr.rec.out.abandon()
		return
	}
	tr.err = tr.rec.out.close()
}

// stop completes the file, and returns the first error of writing it. The trace must be detached from producers before.
// A second call does nothing.
func (tr *trace) stop() error {
	if tr.stopped {
		return nil
	}
	tr.stopped = true
	close(tr.quit)
	limit := time.NewTimer(stopTime)
	defer limit.Stop()
	select {
	case <-tr.done:
		return tr.err
	case <-limit.C:
		return fmt.Errorf("%s is still being written after %v", tr.path, stopTime)
	}
}
