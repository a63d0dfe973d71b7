package carrier

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// Tensor owns the memory of one operation's tensor on a device. Its event has two uses:
//
//   - After the submission the operation waits for the event: for all work that the program's stream had then.
//   - With Options.Async, after the operation's end, the program waits for the event. If the tensor was staged, the
//     event has been reached already.
type Tensor struct {
	place *place
	event cuda.Event
}

// Refused stands for a tensor that cannot be submitted, so that the engine fails the operation on all ranks.
type Refused struct{ Err error }

// Release implements collective.Owner.
func (Refused) Release() {}

// Owner returns what stands for a tensor that a program submits now: a Tensor, or else a Refused.
func (d *Devices) Owner(device int, stream cuda.Stream) collective.Owner {
	t, err := d.Tensor(device, stream)
	if err != nil {
		return Refused{err}
	}
	return t
}

// errOff refuses all tensors.
var errOff = errors.New("it is in the memory of a device, which GOROVOD_GPU=off refuses; copy it to host memory")

// errCapturing refuses tensors in CUDA graphs.
var errCapturing = errors.New("the current stream is being captured into a CUDA graph, which cannot hold " +
	"collectives; " +
	"leave the collective out of the graph")

// Tensor returns the owner of a tensor that a program submits now. The tensor's memory is on a device, and the present
// work of the program's stream makes its contents.
func (d *Devices) Tensor(device int, stream cuda.Stream) (*Tensor, error) {
	if d.options.Mode == Off {
		return nil, errOff
	}
	p, err := d.at(device)
	if err != nil {
		return nil, err
	}
	defer d.watch.programLeaves(d.watch.programEnters())
	if capturing, err := p.context.Capturing(stream); err != nil || capturing {
		if err == nil {
			err = errCapturing
		}
		return nil, err
	}
	t := tensors.Get().(*Tensor)
	t.place = p
	if t.event, err = p.events.take(p.context); err == nil {
		err = p.context.Record(t.event, stream)
	}
	if err != nil {
		t.Release()
		return nil, fmt.Errorf("note the current work of a stream: %w", err)
	}
	return t, nil
}

var tensors = sync.Pool{New: func() any { return new(Tensor) }}

// Wait has a stream of the program wait for the operation, which has ended well. The caller does not wait. With
// Options.Async, Wait fails after an abort, because the abort may have ended the operation on the device with a wrong
// result.
func (t *Tensor) Wait(stream cuda.Stream) error {
	w := t.place.watch
	defer w.programLeaves(w.programEnters())
	if d := w.devices; d.options.Async {
		if cause := d.aborted(); cause != nil {
			return fmt.Errorf("the device may not have done it before the job failed: %w", cause)
		}
	}
	return t.place.context.Wait(stream, t.event)
}

// Reached reports whether the operation's result is there.
func (t *Tensor) Reached() (bool, error) {
	w := t.place.watch
	defer w.programLeaves(w.programEnters())
	return t.place.context.Reached(t.event)
}

// Device returns the tensor's device.
func (t *Tensor) Device() int { return t.place.device }

// Alloc makes device memory for an output. An empty one gets none. The driver calls Alloc.
func (t *Tensor) Alloc(bytes int) ([]byte, error) {
	if bytes == 0 {
		return []byte{}, nil
	}
	t.place.watch.enter()
	defer t.place.watch.leave()
	a, err := t.place.take(bytes)
	if err != nil {
		return nil, err
	}
	return memoryAt(a, bytes), nil
}

// Free frees memory of Alloc once nothing on the device uses it any more. The caller does not wait, because it may be
// the driver.
func (t *Tensor) Free(p []byte) {
	if len(p) > 0 {
		t.place.free(cuda.Address(addressOf(p)))
	}
}

// Release gives the event back: see collective.Owner.
func (t *Tensor) Release() {
	if t.event != 0 {
		t.place.putEvent(t.event)
	}
	*t = Tensor{}
	tensors.Put(t)
}

// pool keeps events that nobody uses now.
type pool struct {
	mu     sync.Mutex
	free   []cuda.Event
	closed bool
}

func (p *pool) take(c Context) (cuda.Event, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return e, nil
	}
	p.mu.Unlock()
	return c.NewEvent()
}

// put keeps an event, and reports whether it has: a closed pool keeps none.
func (p *pool) put(e cuda.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.free = append(p.free, e)
	return true
}

// close returns the events that nobody uses, for the caller to free.
func (p *pool) close() []cuda.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free
	p.free, p.closed = nil, true
	return free
}

// putEvent gives an event back to the pool. After closeEvents it is freed; streams that wait for it still do.
func (p *place) putEvent(e cuda.Event) {
	if !p.events.put(e) {
		p.freeEvents([]cuda.Event{e})
	}
}

// closeEvents frees the events that nobody uses. Others are freed when they are put back.
func (p *place) closeEvents() { p.freeEvents(p.events.close()) }

func (p *place) freeEvents(events []cuda.Event) {
	p.bin.throw(func() {
		for _, e := range events {
			_ = p.context.FreeEvent(e)
		}
	})
}
