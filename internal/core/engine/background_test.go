package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/driving"
)

// The background goroutines carry operations that nobody waits for, wherever the cores are. A thread that begins to
// wait for such an operation takes the seat over, or hears of the end.
func TestBackgroundCarriesWhatNobodyWaitsFor(t *testing.T) {
	for _, c := range []struct{ spare, oneHost, shared bool }{
		{true, true, true}, {false, true, true}, {false, false, true}, {false, true, false}, {false, false, false},
	} {
		t.Run(fmt.Sprintf("spare=%v oneHost=%v shared=%v", c.spare, c.oneHost, c.shared), func(t *testing.T) {
			engines := newWorld(t, 3, c.shared, func(o *Options) {
				o.Spin, o.SpareCores, o.OneHost = c.spare, c.spare, c.oneHost
			})
			each(engines, func(r int, e *Engine) {
				for step := range 20 {
					// Many chunks, so that every rank looks many times before the end.
					data := bytes.Repeat(floats(float32(r+1)), 64<<10)
					en, err := e.Enqueue(sum("large", data))
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					if step%3 == r { // one rank waits from the start, another comes later, and the third looks only
						for deadline := time.Now().Add(limit); !en.Done() && time.Now().Before(deadline); {
							time.Sleep(50 * time.Microsecond)
						}
					} else if step%3 == (r+1)%3 {
						time.Sleep(300 * time.Microsecond)
					}
					if !e.Wait(en, limit) || en.Err() != nil || float(data, 0) != 6 || float(data, 64<<10-1) != 6 {
						t.Errorf("rank %d, step %d: done %v, %v, %v", r, step, en.Done(), en.Err(), float(data, 0))
						return
					}
					en.Release()
				}
			})
		})
	}
}

// If another rank does nothing for a collective, the background goroutine at last sleeps during the collective instead
// of napping for ever. A thread that begins to wait then gets the seat.
func TestBackgroundSleepsAmidWhatStandsStill(t *testing.T) {
	for _, spare := range []bool{true, false} {
		engines := newWorld(t, 2, true, func(o *Options) { o.Spin, o.SpareCores, o.OneHost = spare, spare, true })
		engines[1].seat.take(driving.Seat.Wait) // it submits, and nobody drives it
		data := [][]byte{floats(1, 1), floats(2, 2)}
		var entries [2]*Entry
		for r, e := range engines {
			en, err := e.Enqueue(sum("still", data[r]))
			if err != nil {
				t.Fatal(err)
			}
			entries[r] = en
		}
		sleeps := func() bool { return engines[0].seat.now().Dozing() }
		for deadline := time.Now().Add(limit); !sleeps() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if !sleeps() {
			t.Errorf("spare %v: it has not slept", spare)
		}
		waited := make(chan bool)
		go func() { waited <- engines[0].Wait(entries[0], limit) }()
		for deadline := time.Now().Add(limit); engines[0].seat.now().Aside() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if engines[0].seat.now().Aside() {
			t.Errorf("spare %v: it has not given its seat to the waiter", spare)
		}
		engines[1].leaveSeat()
		if !engines[1].Wait(entries[1], limit) || !<-waited || float(data[0], 0) != 3 || float(data[1], 1) != 3 {
			t.Errorf("spare %v: %v, %v", spare, entries[0].Err(), entries[1].Err())
		}
		for _, en := range entries {
			en.Release()
		}
	}
}

// Where cores are shared, the background goroutine hurries only while an operation with a callback is pending.
func TestLazyUnlessSomebodyIsToBeTold(t *testing.T) {
	engines := newWorld(t, 2, true, func(o *Options) { o.SpareCores, o.OneHost = false, true })
	looked := make(chan struct{})
	each(engines, func(r int, e *Engine) {
		told := make(chan struct{})
		for step, late := range []bool{false, true} {
			op := sum(fmt.Sprint("told", step), floats(1))
			if r == 1 {
				<-looked
			}
			if !late {
				op.Done = func(*Entry) { told <- struct{}{} }
			}
			en, err := e.Enqueue(op)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			if late {
				if err := en.OnDone(func(*Entry) { told <- struct{}{} }); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			if r == 0 {
				if e.mood().Lazy {
					t.Errorf("late %v: lazy although somebody is to be told", late)
				}
				looked <- struct{}{}
			}
			select {
			case <-told:
			case <-time.After(limit):
				t.Errorf("rank %d, late %v: nobody is told", r, late)
			}
			if n := e.callbacks.Load(); n != 0 || !e.mood().Lazy {
				t.Errorf("rank %d, late %v: %d to be told of, lazy %v", r, late, n, e.mood().Lazy)
			}
			en.Release()
		}
	})
}

// A program that asks for an operation again and again waits for it. So the background goroutine hurries, also during
// a nap, but no longer than the program goes on asking.
func TestNotLazyWhileTheProgramAsks(t *testing.T) {
	engines := newWorld(t, 2, true, func(o *Options) { o.SpareCores, o.OneHost = false, true })
	each(engines, func(r int, e *Engine) {
		hurried := false // at some time: a busy machine may take long between two questions
		for i := range 200 {
			en, err := e.Enqueue(sum(fmt.Sprint("asked", i), floats(1)))
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			for deadline := time.Now().Add(limit); !en.Poll() && time.Now().Before(deadline); {
				hurried = hurried || !e.mood().Lazy
				time.Sleep(100 * time.Microsecond)
			}
			if !en.Done() || en.Err() != nil {
				t.Errorf("rank %d: done %v, %v", r, en.Done(), en.Err())
			}
			en.Release()
		}
		if !hurried {
			t.Errorf("rank %d: lazy although the program asks", r)
		}
		for deadline := time.Now().Add(limit); !e.mood().Lazy; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("rank %d: not lazy although nobody asks any more", r)
				return
			}
		}
	})
}
