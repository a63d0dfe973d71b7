package rendezvous

import (
	"testing"
	"time"
)

// A launcher that was stopped hears of everything at once, in any order: what happened
// first is the cause all the same.
func TestTheFirstFailureIsTheOneThatHappenedFirst(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms-10000) * time.Millisecond) }
	report := Failure{Rank: 1, About: 1, Text: "rank 1 raised", At: at(0), reported: true}
	victims := []Failure{{Rank: 2, About: 2, At: at(20)}, {Rank: 0, About: 0, At: at(21)}, {Rank: 0, About: 1, Text: "late", At: at(30), reported: true}}
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

// Times of another host's clock become this one's, as well as its quickest message tells.
func TestClock(t *testing.T) {
	now := time.Now()
	there := func(d time.Duration) int64 { return now.Add(d + time.Hour).UnixNano() } // it is an hour ahead
	var c Clock
	c.Hear(there(0), now.Add(50*time.Millisecond))
	c.Hear(there(time.Second), now.Add(time.Second+2*time.Millisecond))
	c.Hear(there(2*time.Second), now.Add(3*time.Second))
	if got := c.Here(there(3*time.Second), now.Add(9*time.Second)).Sub(now); got != 3002*time.Millisecond {
		t.Errorf("3 s there are %v here", got)
	}
	var same Clock // of this host
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
