// Package timeout ends contexts after a time in which this process could run.
//
// A process that gets no core for seconds, because many others want the same ones, cannot answer its peers in time, nor
// can they. A time-out by the clock then takes a busy machine for a dead peer: when the process runs again, its timer
// has expired, though the answer is there and was not looked at. With counts steps instead. Each step begins when the
// process has noticed the end of the one before, so each time that it could not run makes the time-out longer. Where
// the process runs when it wants to, the time-out is as long as it says.
package timeout

import (
	"context"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// steps is how many steps a time-out has.
const steps = 20

// With returns a context that ends like parent, but at the latest after d, without the time in which this process could
// not run. Its error is context.DeadlineExceeded then. It has no Deadline of its own, because nobody knows it. Call
// cancel, as with context.WithTimeout.
func With(parent context.Context, d time.Duration) (_ context.Context, cancel context.CancelFunc) {
	return with(parent, d, func(d time.Duration) <-chan time.Time { return time.After(d) })
}

// with is With for a clock: after returns a channel that gets a value after d.
func with(parent context.Context, d time.Duration, after func(time.Duration) <-chan time.Time) (context.Context,
	context.CancelFunc) {
	c := &counted{Context: parent, done: make(chan struct{})}
	guard.Go("a time-out", func(error) { c.end(context.Canceled) }, func() {
		for range steps {
			select {
			case <-after(d / steps):
			case <-parent.Done():
				c.end(parent.Err())
				return
			case <-c.done:
				return
			}
		}
		c.end(context.DeadlineExceeded)
	})
	return c, func() { c.end(context.Canceled) }
}

// counted is a context that With has made. Its channel is its own, so that contexts made from it have its error.
type counted struct {
	context.Context
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func (c *counted) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

func (c *counted) Done() <-chan struct{} { return c.done }

func (c *counted) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
