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
// fields count looks at the thread, one for each pause that has passed: Looks counts all, and each other field a part
// of them.
type Thread struct {
	Running uint64 // it had a core
	Starved uint64 // it could have run, but had no core

	Looks   uint64
	Asleep  uint64 // it was in a call that waits for time to pass
	Reading uint64 // it waited for a file, a pipe, a socket, a page of a file or another process
	Locked  uint64 // it waited for another thread
}

const (
	// pause is the time between two looks at a thread that works. A look takes some microseconds, and waking this
	// process for it up to 200.
	pause = 25 * time.Millisecond
	// longestPause is the time between two looks at a thread that has not had a core for long. A look then says what
	// the thread has done all the time, so nothing is missed.
	longestPause = 800 * time.Millisecond
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
	w.mu.Lock()
	counts := w.counts // which only this goroutine changes
	w.mu.Unlock()
	p := pace{pause: pause}
	timer := time.NewTimer(p.pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.stop:
			return
		}
		p.look(&counts, thread.ran(), thread.does)
		w.mu.Lock()
		w.counts = counts
		if time.Since(w.asked) > patience {
			w.looking = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		timer.Reset(p.pause)
	}
}

// pace is how often a thread is looked at. While the thread has no core, it stays where it was, and the pauses grow.
type pace struct {
	pause time.Duration // before the next look
	ran   uint64        // how long the thread had had a core at the last look, 0 if unknown
	did   doing         // what it did then
}

// look counts what the thread has done since the last look. ran is how long it has had a core so far, 0 if unknown;
// does says what it does now.
func (p *pace) look(counts *Thread, ran uint64, does func() doing) {
	looks := uint64(p.pause / pause)
	if ran > 0 && ran == p.ran {
		counts.add(p.did, looks)
		p.pause = min(2*p.pause, longestPause)
		return
	}
	before := looks / 2 // the thread went on at some time in between
	counts.add(p.did, before)
	p.ran, p.did, p.pause = ran, does(), pause
	counts.add(p.did, looks-before)
}

func (t *Thread) add(did doing, looks uint64) {
	t.Looks += looks
	switch did {
	case asleep:
		t.Asleep += looks
	case reading:
		t.Reading += looks
	case locked:
		t.Locked += looks
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
