//go:build cgo && linux

package mpi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// A goroutine that makes a communicator may stay in MPI for ever, with the lock. The driver, which gives up a process
// set meanwhile, does not wait for that goroutine. Neither does the end of the process, or a program that calls MPI
// again after hvd.shutdown().
func TestFreeDoesNotWaitForACommunicatorThatIsMade(t *testing.T) {
	for name, call := range map[string]func(*Library){
		"Free":     func(l *Library) { (&Communicator{library: l}).Free() },
		"Finalize": func(l *Library) { l.Finalize() },
		"Init": func(l *Library) {
			if err := l.Init(false); err == nil || err != l.Err() {
				t.Errorf("Init: %v, and MPI is lost for %v", err, l.Err())
			}
		},
	} {
		l := new(Library)
		l.mu.Lock()
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			call(l)
		}()
		select {
		case <-returned:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s waits", name)
		}
		if !errors.Is(l.Err(), errBusy) {
			t.Errorf("%s: MPI is lost for %v", name, l.Err())
		}
		l.mu.Unlock()
		call(l) // MPI is not called any more: this Library has no functions
	}
}

// A program that asks what MPI can do does not wait either.
func TestThreadsSupportedDoesNotWaitForACommunicatorThatIsMade(t *testing.T) {
	l := new(Library)
	zeros(&l.functions)
	l.level.Store(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := make(chan bool)
	go func() { answer <- l.ThreadsSupported() }()
	select {
	case supported := <-answer:
		if supported {
			t.Error("level 1 is MPI_THREAD_MULTIPLE, which is 0 here")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("ThreadsSupported waits")
	}
}

// zeros allocates the value that p points to. Its type is one of C, which a test cannot name.
func zeros[T any](p **T) { *p = new(T) }

// A program that asks about a communicator waits until MPI is lost, and no longer.
func TestRanksWaitsUntilMPIIsLost(t *testing.T) {
	l := new(Library)
	zeros(&l.functions)
	l.mu.Lock()
	defer l.mu.Unlock()
	asked := make(chan error, 1)
	go func() {
		_, err := (&Communicator{library: l}).Ranks(1)
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	l.lose(errGroup)
	select {
	case err := <-asked:
		if !errors.Is(err, errGroup) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Ranks waits")
	}
}

// After an abort Hung names a call that does not return. It does not name a call that by its nature waits for others,
// and it returns when MPI is lost.
func TestHung(t *testing.T) {
	const limit = 300 * time.Millisecond
	test := slices.Index(names[:], "Test")
	l := new(Library)
	c := &Communicator{library: l}
	l.underWay.begin(uint32(test))
	if call := c.Hung(t.Context(), limit); call != "MPI_Test" {
		t.Errorf("%q hangs", call)
	}
	l.lose(errBusy)
	if call := c.Hung(t.Context(), limit); call != "MPI_Test" {
		t.Errorf("%q hangs, and MPI is lost", call)
	}
	l.underWay.end()
	if call := c.Hung(t.Context(), time.Hour); call != "" {
		t.Errorf("%q hangs after the end", call)
	}
	if call := (&Communicator{library: new(Library)}).Hung(t.Context(), limit); call != "" {
		t.Errorf("%q hangs, and there is none", call)
	}
	for _, waits := range []string{"Init_thread", "Comm_create_group"} {
		waiting := new(Library)
		waiting.underWay.begin(uint32(slices.Index(names[:], waits)))
		if call := (&Communicator{library: waiting}).Hung(t.Context(), limit); call != "" {
			t.Errorf("%q hangs, which waits for others", call)
		}
	}
}

// Calls that return are never taken for one that hangs, however many follow one another.
func TestNoCallThatReturnsHangs(t *testing.T) {
	const limit = 3 * time.Second // on a busy machine a thread loses its core for less time during a call
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	test := uint32(slices.Index(names[:], "Test"))
	l := new(Library)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			l.underWay.begin(test)
			for range 1000 { // so that a call is running at nearly every look
				ctx.Err()
			}
			l.underWay.end()
		}
	}()
	if call := (&Communicator{library: l}).Hung(ctx, limit); call != "" || ctx.Err() == nil {
		t.Errorf("%q hangs amid calls that return", call)
	}
	<-ended
}
