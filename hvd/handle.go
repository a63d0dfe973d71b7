package hvd

import (
	"context"
	"errors"
	"time"

	"github.com/gorovod/gorovod/internal/core/engine"
)

// Handle is an operation in progress that changes its slice. One goroutine at a time may use it. The zero Handle has no
// operation; WithHandle gives it one.
type Handle struct {
	entry  *engine.Entry
	result func(*engine.Entry) // called before the Entry is released, if all went well
}

// Done reports whether the operation has ended, so that Wait would not block.
func (h *Handle) Done() bool { return h.entry == nil || h.entry.Poll() }

// waitSlice bounds how late Wait sees that its context has ended.
const waitSlice = 50 * time.Millisecond

// Wait blocks until the operation has ended, and returns its error. If ctx is done
// earlier, Wait returns ctx's error, the operation goes on, and you may call Wait
// again. Once Wait has returned the operation's outcome, the Handle is spent, and
// another Wait is an error.
func (h *Handle) Wait(ctx context.Context) error {
	e := h.entry
	if e == nil {
		return errors.New("hvd: Wait on a handle whose operation has been waited for")
	}
	for {
		d := time.Duration(-1)
		ended := ctx.Err()
		if ended != nil {
			d = 0
		} else if ctx.Done() != nil {
			d = waitSlice
		}
		// This is called even if ctx has ended, because a caller that stops waiting must hand the operation over to the
		// engine's own goroutine.
		if e.Wait(d) {
			break
		}
		if ended != nil {
			return named(e.Type(), e.Name(), ended)
		}
	}
	var err error
	if failure := e.Err(); failure != nil {
		err = named(e.Type(), e.Name(), wrap(failure))
	} else if h.result != nil {
		h.result(e)
	}
	h.entry = nil
	e.Release()
	return err
}

// ResultHandle is an operation in progress that makes a new slice. One
// goroutine at a time may use it.
type ResultHandle[T Element] struct {
	h        *Handle
	out      []T // made and filled by the engine, before h is done
	received []int
}

// Done reports whether the operation has ended, so that Wait would not block.
func (h *ResultHandle[T]) Done() bool { return h.h.Done() }

// Wait blocks as Handle.Wait does, and returns the operation's result. The caller
// owns it.
func (h *ResultHandle[T]) Wait(ctx context.Context) ([]T, error) {
	if err := h.h.Wait(ctx); err != nil {
		return nil, err
	}
	out := h.out
	h.out = nil
	return out, nil
}

// ReceivedSplits is how many elements each process has sent to this one. Call it
// after Wait on an Alltoall; otherwise it is nil.
func (h *ResultHandle[T]) ReceivedSplits() []int { return h.received }
