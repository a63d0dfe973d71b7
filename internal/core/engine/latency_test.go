package engine

import (
	"testing"
	"time"
)

// goesOnSoon fails unless one of five tries takes less than soon. On a busy machine, some may take longer.
func goesOnSoon(t *testing.T, try func() time.Duration) {
	t.Helper()
	var took [5]time.Duration
	for i := range took {
		if took[i] = try(); took[i] < soon {
			return
		}
	}
	t.Errorf("it went on after %v", took)
}

// expect waits until something holds.
func expect(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %v: %s", limit, what)
		}
	}
}

// dozes submits a sum to rank 0 alone, and waits until the background goroutine has begun to sleep on the bell.
func dozes(t *testing.T, engines []*Engine) *Entry {
	t.Helper()
	en := enqueue(t, engines[0], sum("x", floats(1)))
	expect(t, "the background goroutine sleeps", func() bool { return engines[0].seat.now().Dozing() })
	return en
}

// ends lets rank 1 submit the sum, too.
func ends(t *testing.T, engines []*Engine, en *Entry) {
	t.Helper()
	if err := do(t, engines[1], sum("x", floats(1))); err != nil || !engines[0].Wait(en, limit) || en.Err() != nil {
		t.Errorf("%v, %v", err, en.Err())
	}
	en.Release()
}

// A waiter that parks while the background goroutine sleeps on the bell is to drive at once.
func TestAWaiterThatParksRings(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	goesOnSoon(t, func() time.Duration {
		en := dozes(t, engines)
		began := time.Now()
		engines[0].park(en, 10*soon)
		took := time.Since(began)
		ends(t, engines, en)
		return took
	})
}

// A thread that claims the seat rings for the background goroutine. One that asks in a loop never parks, so nobody else
// rings for it.
func TestAThreadThatClaimsTheSeatRings(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	goesOnSoon(t, func() time.Duration {
		en := dozes(t, engines)
		began := time.Now()
		for engines[0].seat.now().Dozing() && time.Since(began) < limit {
			en.Poll()
		}
		took := time.Since(began)
		ends(t, engines, en)
		return took
	})
}

// A thread may want the seat when the background goroutine is about to sleep: its ring comes before the bell is armed.
// Then the background goroutine does not sleep.
func TestTheBackgroundDoesNotSleepWhileAThreadWantsTheSeat(t *testing.T) {
	for name, want := range map[string]func(e *Engine, en *Entry) (over func()){
		"it claims the seat": func(e *Engine, _ *Entry) func() {
			e.seat.claim()
			return e.seat.unclaim
		},
		"it is parked": func(e *Engine, en *Entry) func() {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				e.park(en, 10*soon)
			}()
			expect(t, "a thread is parked", func() bool { return e.seat.now().Parked() })
			return func() { <-ended }
		},
	} {
		t.Run(name, func(t *testing.T) {
			engines, bell := newInterruptedWorld(t)
			e := engines[0]
			goesOnSoon(t, func() time.Duration {
				unarmed, goOn := make(chan struct{}), make(chan struct{})
				bell.amid <- func() {
					close(unarmed)
					<-goOn
				}
				en := enqueue(t, e, sum("x", floats(1)))
				<-unarmed
				over := want(e, en)
				e.ring() // has no effect yet
				began := time.Now()
				close(goOn)
				expect(t, "the background goroutine has left the seat", func() bool { return !e.seat.now().Aside() })
				took := time.Since(began)
				over()
				ends(t, engines, en)
				return took
			})
		})
	}
}

// The background goroutine may be amid a long step when a waiter comes. After that step, the waiter drives.
func TestAWaiterDrivesAfterALongStepOfTheBackground(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	e := engines[0]
	goesOnSoon(t, func() time.Duration {
		step := make(chan struct{})
		op := sum("x", floats(1))
		submitted := false
		op.Ready = func() bool { // Enqueue asks first, and then the driver
			if !submitted {
				submitted = true
				return false
			}
			<-step
			return true
		}
		en := enqueue(t, e, op)
		expect(t, "the background goroutine has the seat", func() bool { return e.seat.now().Aside() })
		en.Retain()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer en.Release()
			e.Wait(en, limit)
		}()
		parked(t, e, 1)
		began := time.Now()
		close(step)
		parked(t, e, 0)
		took := time.Since(began)
		ends(t, engines, en)
		<-ended
		return took
	})
}

// A thread that leaves the seat wakes a parked waiter whose time is just over. That waiter does not drive, so it finds
// another driver for what is pending.
func TestAWaiterWhoseTimeIsOverFindsADriver(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	e := engines[1] // rank 0 coordinates, so its driver may be woken for other reasons
	e.seat.takeLast()
	en := submits(t, e, "x")
	const patience = 50 * time.Millisecond
	waited := make(chan bool)
	go func() { waited <- e.Wait(en, patience) }()
	parked(t, e, 1)
	e.parking.mu.Lock() // nobody is woken, and the waiter cannot go
	go e.leaveSeat()
	expect(t, "the seat is free", func() bool { return e.seat.now().Free() })
	time.Sleep(2 * patience) // the leaver waits for the lock, and then the waiter does
	e.parking.mu.Unlock()
	if <-waited {
		t.Fatal("done without rank 0")
	}
	other := submits(t, engines[0], "x")
	began := time.Now()
	for !en.Done() && time.Since(began) < 10*soon {
		engines[0].Wait(other, time.Millisecond)
	}
	if !en.Done() {
		t.Error("nobody drives")
	}
}
