package rendezvous

import (
	"strings"
	"testing"
	"time"
)

// A launcher that was stopped hears all news at once, in any order. The first failure is still the cause.
func TestTheFirstFailureIsTheOneThatHappenedFirst(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms-10000) * time.Millisecond) }
	report := Failure{Rank: 1, About: 1, Text: "rank 1 raised", At: at(0), reported: true}
	victims := []Failure{{Rank: 2, About: 2, At: at(20)}, {Rank: 0, About: 0, At: at(21)},
		{Rank: 0, About: 1, Text: "late", At: at(30), reported: true}}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}} {
		s := NewServer(nil, 3)
		for _, i := range order {
			s.note(append(victims[:3:3], report)[i])
		}
		if f := s.First(); f == nil || f.Text != report.Text {
			t.Errorf("order %v: got %+v", order, f)
		}
	}
	for name, c := range map[string]struct {
		failures []Failure
		want     string
	}{
		"an end comes before the report":    {[]Failure{{About: 2, At: at(-1)}, report}, ""},
		"it was long before, and survived":  {[]Failure{{About: 2, At: at(-40000)}, report}, "rank 1 raised"},
		"a report that was long ago":        {[]Failure{{About: 2, Text: "old", At: at(-40000), reported: true}}, ""},
		"what follows an end within a wake": {[]Failure{{About: 2, At: at(-20000)}, report}, ""},
	} {
		s := NewServer(nil, 3)
		for _, f := range c.failures {
			s.note(f)
		}
		if f := s.First(); (f == nil) != (c.want == "") || f != nil && f.Text != c.want {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

// Clock translates times of another host's clock into this host's, within the bounds that the messages give.
func TestClock(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	for _, ahead := range []int{3600_000, 20, 0, -20, -3600_000} { // how far the other clock is ahead, in ms
		there := func(t int) int64 { return at(t + ahead).UnixNano() }
		var c, alone Clock
		c.Hear(there(5), at(0), at(50))        // sent after 0, came at 50
		c.Hear(there(1000), at(995), at(1002)) // the tightest bound
		c.Hear(there(2000), time.Time{}, at(3000))
		alone.Hear(there(0), time.Time{}, at(50))
		alone.Hear(there(1000), time.Time{}, at(1002))
		if got := ms(c.Here(there(3000), at(9000)).Sub(now)); got < 2995 || got > 3002 || ahead == 0 && got != 3000 {
			t.Errorf("%d ms ahead: 3000 ms there are %d here", ahead, got)
		}
		if got := ms(alone.Here(there(3000), at(9000)).Sub(now)); got < 3000 || got > 3050 {
			t.Errorf("%d ms ahead: 3000 ms there are %d here, without bounds", ahead, got)
		}
	}
	var same Clock // the zero value: this host's clock
	if got := same.Here(now.UnixNano(), now.Add(time.Second)); !got.Equal(now) {
		t.Errorf("%v is %v here", now, got)
	}
	if got := same.Here(now.Add(time.Hour).UnixNano(), now); !got.Equal(now) {
		t.Errorf("a time to come is %v", got.Sub(now))
	}
	if got := same.Here(0, now); !got.Equal(now) {
		t.Errorf("no time is %v", got.Sub(now))
	}
}

// A time of another process keeps its distance to this process's times if the clock is set afterwards: it has monotonic
// time, which a clock that is set does not change.
func TestHereIsMonotonic(t *testing.T) {
	now := time.Now()
	for _, then := range []int64{0, now.Add(-time.Minute).UnixNano(), now.Add(time.Minute).UnixNano()} {
		if here := new(Clock).Here(then, now); !strings.Contains(here.String(), " m=") || here.After(now) {
			t.Errorf("%d becomes %v, now %v", then, here, now)
		}
	}
}
