// Package vitals looks at this process from inside: what its main thread does, and how busy its connections are.
// Package world asks it while somebody watches the job. It sends nothing, signals no thread, and needs no lock of the
// program.
package vitals

import (
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Thread is what the main thread has done since the first Ask. Durations are in nanoseconds; 0 if unknown. The other
// fields count looks at the thread: Looks counts all, and each other field a part of them.
type Thread struct {
	Running uint64 // it had a core
	Starved uint64 // it could have run, but had no core

	Looks   uint64
	Asleep  uint64 // it was in a call that waits for time to pass
	Reading uint64 // it waited for a file, a pipe, a socket, a page of a file or another process
	Locked  uint64 // it waited for another thread
}

const (
	// pause is the time between two looks. A look takes some microseconds, so this costs 0.05 % of a core.
	pause = 25 * time.Millisecond
	// patience is how long the looks go on after the last Ask. The launcher asks every second or two.
	patience = 5 * time.Second
)

// Watch looks at the main thread. Its methods are safe on any goroutine.
type Watch struct {
	mu      sync.Mutex
	counts  Thread
	asked   time.Time
	looking bool
	closed  bool
	stop    chan struct{}
	running sync.WaitGroup
}

// Ask returns the counts so far. From now on Watch looks at the main thread, until patience after the last Ask.
func (w *Watch) Ask() Thread {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = time.Now()
	if !w.looking && !w.closed {
		if w.stop == nil {
			w.stop = make(chan struct{})
		}
		w.looking = true
		guard.In(&w.running, "the look at the main thread", func(error) {}, w.look) // nothing else depends on it
	}
	t := w.counts
	t.Running, t.Starved = scheduled()
	return t
}

// Close ends the looking.
func (w *Watch) Close() {
	w.mu.Lock()
	if !w.closed && w.stop != nil {
		close(w.stop)
	}
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

// look counts what the main thread does, at regular intervals.
func (w *Watch) look() {
	thread, err := openThread()
	if err != nil { // the kernel does not tell: Looks stays 0, and a later Ask tries again
		w.mu.Lock()
		w.looking = false
		w.mu.Unlock()
		return
	}
	defer thread.close()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		does := thread.does()
		w.mu.Lock()
		w.counts.Looks++
		switch does {
		case asleep:
			w.counts.Asleep++
		case reading:
			w.counts.Reading++
		case locked:
			w.counts.Locked++
		}
		if time.Since(w.asked) > patience {
			w.looking = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// doing is what a look has seen.
type doing uint8

const (
	other doing = iota // it runs, wants to run, or is in another call
	asleep
	reading
	locked
)
