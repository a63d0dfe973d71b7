package engine

import (
	"testing"
	"time"
)

// Only the main thread's waits count, only those that follow one another, and only since the last submission.
func TestBlocked(t *testing.T) {
	main := true
	e := &Engine{opts: Options{MainThread: func() bool { return main }}}
	start := thisMoment()
	at := func(ms int) moment { return start + moment(ms)*moment(time.Millisecond) }
	ms := func(en *Entry, now int) int {
		since := e.blockedSince(en, at(now))
		if since == 0 {
			return -1
		}
		return int(since.since(start).Milliseconds())
	}
	en := &Entry{since: start}
	want := func(now, since int) {
		t.Helper()
		if got := ms(en, now); got != since {
			t.Errorf("at %d ms blocked since %d, want %d", now, got, since)
		}
	}
	want(0, -1)
	e.noteBlocked(en, at(100), at(200))
	want(250, 100)
	e.noteBlocked(en, at(210), at(310))
	e.noteBlocked(en, at(500), at(600))
	want(700, 100)
	want(2700, -1) // nobody has waited since
	e.noteBlocked(en, at(1000), at(1100))
	want(1100, 1000)
	e.active = at(1050)
	want(1100, 1050)
	en.agreed = true
	want(1100, -1)
	en.agreed, main = false, false
	e.noteBlocked(en, at(1100), at(9000))
	want(9000, -1)
}

// TestAnOperationHoldsItsCaller: an operation that the main thread has submitted holds it, although no thread waits in
// the engine.
func TestAnOperationHoldsItsCaller(t *testing.T) {
	for _, main := range []bool{true, false} {
		engines := newWorld(t, 2, true, func(o *Options) { o.MainThread = func() bool { return main } })
		op := sum("x", floats(1))
		op.HoldsCaller = true
		en := enqueue(t, engines[0], op)
		waiting := engines[0].Waiting()
		if len(waiting) != 1 || waiting[0].Needed != main || waiting[0].Blocked.IsZero() == main {
			t.Errorf("main thread %v: %+v", main, waiting)
		}
		if err := do(t, engines[1], sum("x", floats(1))); err != nil {
			t.Error(err)
		}
		if err := finish(t, engines[0], en); err != nil {
			t.Error(err)
		}
		en.Release()
	}
}

// TestBlockedByWhatIsFollowed: a thread that waits for an operation which follows another one waits for the latter.
func TestBlockedByWhatIsFollowed(t *testing.T) {
	e := &Engine{opts: Options{MainThread: func() bool { return true }}}
	now := thisMoment()
	first := &Entry{since: now - 3*moment(time.Second)}
	second, third := &Entry{follows: []*Entry{first}}, &Entry{}
	third.follows = []*Entry{second}
	l := &lane{engine: e, unready: []*Entry{second, third}}
	e.noteBlocked(third, now-moment(time.Second), now)
	for en, want := range map[*Entry]time.Duration{first: time.Second, second: 0, third: 0} {
		got := time.Duration(0)
		if since := l.blockedSince(en, now); since != 0 {
			got = now.since(since)
		}
		if got != want {
			t.Errorf("blocked for %v, want %v", got, want)
		}
	}
}
