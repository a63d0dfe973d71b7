package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// crowded are two ranks that share cores: their background goroutines are lazy.
func crowded(o *Options) { o.OneHost = true }

// parked waits until n threads of e are parked.
func parked(t *testing.T, e *Engine, n int) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		e.parking.mu.Lock()
		now := len(e.parking.sleepers)
		e.parking.mu.Unlock()
		if now == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads are parked, want %d", now, n)
		}
	}
}

// submits enqueues a sum for a caller that waits at once.
func submits(t *testing.T, e *Engine, name string) *Entry {
	t.Helper()
	op := sum(name, floats(1))
	op.WillWait = true
	en, err := e.Enqueue(op)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(en.Release)
	return en
}

// A waiter that leaves the seat makes a parked one the driver, not the background goroutine. Here the background
// goroutine could not drive: it has been ended.
func TestAParkedWaiterDrivesNext(t *testing.T) {
	engines := newWorld(t, 2, true, crowded)
	e, other := engines[0], engines[1]
	close(e.quit)
	<-e.stopped
	defer func() { // for the shutdown
		e.quit, e.stopped = make(chan struct{}), make(chan struct{})
		go e.background()
	}()
	const waiters = 4
	var all sync.WaitGroup
	took := make([]time.Duration, waiters)
	var ended [waiters]chan struct{}
	for i := range waiters {
		en := submits(t, e, fmt.Sprint("x", i))
		ended[i] = make(chan struct{})
		all.Go(func() {
			defer close(ended[i])
			if !e.Wait(en, limit) || en.Err() != nil {
				t.Errorf("waiter %d: %v", i, en.Err())
			}
		})
		parked(t, e, i) // the first one drives
	}
	for i := range waiters {
		began := time.Now()
		en := submits(t, other, fmt.Sprint("x", i))
		if !other.Wait(en, limit) {
			t.Fatalf("rank 1 still waits for operation %d", i)
		}
		<-ended[i]
		took[i] = time.Since(began)
	}
	all.Wait()
	for i, d := range took { // a parked waiter looks by itself only after a second
		if d > 700*time.Millisecond {
			t.Errorf("operation %d ended after %v", i, d)
		}
	}
}

// All threads that wait for one operation hear of its end.
func TestSeveralThreadsWaitForOneOperation(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	e, other := engines[0], engines[1]
	en := submits(t, e, "x")
	const waiters = 5
	ended := make(chan time.Time, waiters)
	for range waiters {
		go func() {
			if !e.Wait(en, limit) {
				t.Error("not done")
			}
			ended <- time.Now()
		}()
	}
	parked(t, e, waiters-1)
	if en := submits(t, other, "x"); !other.Wait(en, limit) {
		t.Fatal("rank 1 still waits")
	}
	first := <-ended
	for range waiters - 1 { // a parked waiter looks by itself only after a second
		if late := (<-ended).Sub(first); late > 700*time.Millisecond {
			t.Errorf("a thread heard of it %v later than another one", late)
		}
	}
}
