package vitals

import (
	"fmt"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/leak"
)

// TestTheMainThreadIsLookedAt checks that the looks begin with the first Ask and end with Close.
func TestTheMainThreadIsLookedAt(t *testing.T) {
	probe, err := openThread()
	if err != nil {
		t.Skip(err)
	}
	probe.close()
	before := leak.Now()
	w := &Watch{}
	if first := w.Ask(); first.Looks != 0 {
		t.Errorf("%+v before the first look", first)
	}
	deadline := time.Now().Add(time.Minute)
	now := w.Ask()
	for ; now.Looks < 3; now = w.Ask() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v after a minute", now)
		}
		time.Sleep(time.Millisecond)
	}
	if now.Asleep+now.Reading+now.Locked > now.Looks {
		t.Errorf("%+v", now)
	}
	w.Close()
	w.Close()
	if later := w.Ask(); later.Looks < now.Looks {
		t.Errorf("%+v, then %+v", now, later)
	}
	before.Check(t)
}

func TestCloseWithoutAsking(t *testing.T) {
	w := &Watch{}
	w.Close()
	w.Ask()
}

// A thread that has no core is looked at ever less often, and what it does counts for all the time. Once it has had a
// core, the looks come at their usual pace again, and the time in between counts for what it did before and after.
func TestPaceFollowsTheThread(t *testing.T) {
	p, counts, looked := pace{pause: pause}, Thread{}, 0
	var passed time.Duration
	look := func(ran uint64, did doing) {
		passed += p.pause
		p.look(&counts, ran, func() doing {
			looked++
			return did
		})
	}
	for range 4 {
		look(5, locked)
	}
	if got := fmt.Sprint(p.pause, looked, counts); got != "200ms 1 {0 0 8 0 0 8}" || passed != 8*pause {
		t.Errorf("%s after %v", got, passed)
	}
	look(6, asleep)
	if got := fmt.Sprint(p.pause, looked, counts); got != "25ms 2 {0 0 16 4 0 12}" || passed != 16*pause {
		t.Errorf("%s after %v", got, passed)
	}
	look(7, reading)
	look(8, other)
	if got := fmt.Sprint(p.pause, looked, counts); got != "25ms 4 {0 0 18 4 1 12}" {
		t.Error(got)
	}
	for range 20 {
		look(8, locked) // it has not run: nothing can have changed
	}
	if p.pause != longestPause || looked != 4 || counts.Looks != uint64(passed/pause) {
		t.Errorf("%v, %d looks, %+v after %v", p.pause, looked, counts, passed)
	}
	p = pace{pause: pause}
	for range 3 {
		look(0, locked) // the kernel does not tell how long it has run
	}
	if p.pause != pause || looked != 7 {
		t.Errorf("%v, %d looks", p.pause, looked)
	}
}
