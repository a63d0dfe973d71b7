//go:build cgo && linux

package mpi

import (
	"errors"
	"testing"
	"time"
)

// A goroutine that makes a communicator may stay in MPI for ever, with the lock. The driver, which gives up a process
// set meanwhile, does not wait for it; nor does the end of the process.
func TestFreeDoesNotWaitForACommunicatorThatIsMade(t *testing.T) {
	for name, call := range map[string]func(*Library){
		"Free":     func(l *Library) { (&Communicator{library: l}).Free() },
		"Finalize": (*Library).Finalize,
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
		call(l) // MPI is called no more: this Library has no functions
	}
}
