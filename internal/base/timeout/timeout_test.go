package timeout

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// clock lets a test say when time passes.
type clock struct {
	waits chan time.Duration
	end   chan time.Time
}

func (c *clock) after(d time.Duration) <-chan time.Time {
	c.waits <- d
	return c.end
}

// The context ends after all steps, each of which begins when the one before has been noticed.
func TestStepsBeginWhenTheLastOneWasNoticed(t *testing.T) {
	c := &clock{make(chan time.Duration), make(chan time.Time)}
	ctx, cancel := with(t.Context(), 40*time.Second, c.after)
	defer cancel()
	for step := range steps {
		if d := <-c.waits; d != 2*time.Second {
			t.Errorf("step %d takes %v", step, d)
		}
		if ctx.Err() != nil {
			t.Fatalf("it has ended before step %d: %v", step, ctx.Err())
		}
		c.end <- time.Time{}
	}
	<-ctx.Done()
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
	child, stop := context.WithCancel(ctx)
	defer stop()
	if <-child.Done(); !errors.Is(child.Err(), context.DeadlineExceeded) {
		t.Errorf("a child ends with %v", child.Err())
	}
}

// Whoever cancels ends it at once, as does the parent.
func TestCancel(t *testing.T) {
	for _, byParent := range []bool{false, true} {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := With(parent, time.Hour)
		if byParent {
			end()
		} else {
			cancel()
		}
		<-ctx.Done()
		if err := ctx.Err(); err != context.Canceled {
			t.Errorf("by its parent %v: %v", byParent, err)
		}
		end()
		cancel()
	}
}

// Calls of the standard library take its end for a time-out.
func TestADialTimesOut(t *testing.T) {
	ctx, cancel := With(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	_, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:1")
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v", err)
	}
}
