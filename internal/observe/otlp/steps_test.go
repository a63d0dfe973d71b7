package otlp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// told are a rank's figures after so many steps of 10 ms with 32 samples each, in which it has waited for 4 ms, lately
// 40 ms for another rank, and communicated for 2 ms.
func told(steps uint64, late int) []byte {
	f := &feed.Figures{Samples: 32 * steps, Waited: steps * 4e6}
	f.Steps.Counts[14], f.Steps.Sum = steps, steps*10e6
	f.Works = []feed.Work{{Op: operation.Allreduce}}
	f.Works[0].Times.Counts[11], f.Works[0].Times.Sum = steps, steps*2e6
	if late >= 0 {
		f.WaitedFor = []feed.Late{{Rank: late, Nanoseconds: 40e6}}
	}
	return f.Append(nil)
}

// attributes are a span's, as texts.
func attributes(s span) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		switch v := a.Value; {
		case v.Text != nil:
			m[a.Key] = *v.Text
		case v.Int != nil:
			m[a.Key] = *v.Int
		case v.Real != nil:
			m[a.Key] = fmt.Sprintf("%.3g", *v.Real)
		}
	}
	return m
}

// stepping is a job of three ranks, whose figures have been told once.
func stepping(o Options) *Job {
	j := Start(o, "python")
	j.Form(3, 7, func() int { return 3 }, nil)
	for r := range 3 {
		j.Take(r, 7, fmt.Sprint("host", r), told(10, -1))
	}
	return j
}

// The interval's steps are one span, however many they are, with the rank for which the others waited below it. An
// interval without the end of a step makes none.
func TestSpansOfSteps(t *testing.T) {
	c := &collector{}
	server := httptest.NewServer(c)
	defer server.Close()
	o, _ := options(server.URL)
	j := stepping(o)
	j.mu.Lock()
	j.endInterval() // nobody has told of another step
	j.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	for r := range 3 {
		late := 2
		if r == 2 {
			late = -1
		}
		j.Take(r, 7, fmt.Sprint("host", r), told(10+1000_000, late))
		j.Take(r, 6, "", told(1, -1)) // of an earlier world
	}
	j.End(0)
	if len(c.errs) > 0 {
		t.Fatal(c.errs)
	}
	byID, steps, late := map[string]span{}, []span{}, []span{}
	for _, s := range c.spans {
		byID[s.SpanID] = s
		switch s.Name {
		case "steps":
			steps = append(steps, s)
		case "late":
			late = append(late, s)
		}
	}
	if len(steps) != 1 || len(late) != 1 || byID[steps[0].ParentID].Name != "world" ||
		late[0].ParentID != steps[0].SpanID {
		t.Fatalf("%+v", c.spans)
	}
	a := attributes(steps[0])
	for key, want := range map[string]string{"horovod.steps": "1000000", "horovod.step.seconds": "0.01",
		"horovod.samples": "96000000", "horovod.ranks": "3", "horovod.slowest.rank": "2",
		"horovod.slowest.host": "host2", "horovod.slowest.waited_seconds": "0.04"} {
		if a[key] != want {
			t.Errorf("%s is %s, not %s", key, a[key], want)
		}
	}
	start, _ := strconv.ParseInt(steps[0].Start, 10, 64)
	end, _ := strconv.ParseInt(steps[0].End, 10, 64)
	if took := time.Duration(end - start); took < 100*time.Millisecond || took > 5*time.Second {
		t.Errorf("the span takes %v", took)
	}
}

// Shares of the time add up to 1.
func TestShares(t *testing.T) {
	v := interval{ranks: make([]worker, 1)}
	now := time.Now()
	f, _ := feed.Decode(told(0, -1))
	v.take(now, 0, 0, "", f)
	f, _ = feed.Decode(told(100, -1))
	v.take(now.Add(time.Second), 0, 0, "", f)
	j := &Job{e: &exporter{queue: make(chan span, mostQueued)}, world: &span{}, interval: v}
	j.endInterval()
	a := attributes(<-j.e.queue)
	if a["horovod.waiting"] != "0.4" || a["horovod.communicating"] != "0.2" || a["horovod.computing"] != "0.4" {
		t.Error(a)
	}
}

// The answers of two ranks can be a second apart. The span has the times of the rank whose steps it counts.
func TestTimesOfSteps(t *testing.T) {
	v := interval{ranks: make([]worker, 2)}
	now := time.Now()
	for i, at := range []time.Duration{0, 1, 2, 3} {
		f, _ := feed.Decode(told(uint64(100*i), -1))
		v.take(now.Add(at*time.Second), i%2, 0, "", f)
	}
	j := &Job{e: &exporter{queue: make(chan span, mostQueued)}, world: &span{}, interval: v}
	j.endInterval()
	s := <-j.e.queue
	if s.Start != nanos(now) || s.End != nanos(now.Add(2*time.Second)) {
		t.Errorf("from %s to %s, though the steps are of 2 s from %s", s.Start, s.End, nanos(now))
	}
	if r := j.interval.ranks[0]; r.since != r.told {
		t.Error("the next interval does not begin where this one ends")
	}
}

// A rank that begins anew in the same world ends the interval, so that none of its steps are lost.
func TestStepsBeforeABeginning(t *testing.T) {
	v := interval{ranks: make([]worker, 1)}
	f, _ := feed.Decode(told(0, -1))
	v.take(time.Now().Add(-time.Second), 0, 1, "", f)
	j := &Job{e: &exporter{queue: make(chan span, mostQueued)}, world: &span{}, interval: v}
	for generation, steps := range []uint64{1: 100, 2: 3} {
		if steps > 0 {
			j.Take(0, uint64(generation), "", told(steps, -1))
		}
	}
	if a := attributes(<-j.e.queue); a["horovod.steps"] != "100" {
		t.Error(a)
	}
}

// Steps leave room in the queue for failures.
func TestStepsLeaveRoom(t *testing.T) {
	e := &exporter{queue: make(chan span, mostQueued)}
	for range 10 * mostQueued {
		e.addSteps([]span{{Name: "steps"}, {Name: "late"}})
	}
	if n := len(e.queue); n != mostQueued/2 {
		t.Errorf("%d spans of steps are queued", n)
	}
}

// A collector that says when to come back gets the same spans then, and no request before. What waits is bounded.
func TestComeBackLater(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			c := &collector{}
			var mu sync.Mutex
			var at []time.Time
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				at = append(at, time.Now())
				first := len(at) == 1
				mu.Unlock()
				if first {
					w.Header().Set("Retry-After", "2")
					w.WriteHeader(code)
					return
				}
				c.ServeHTTP(w, r)
			}))
			defer server.Close()
			o, warnings := options(server.URL)
			j := stepping(o)
			j.Fail("the first")
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				mu.Lock()
				n := len(at)
				mu.Unlock()
				if n > 0 || time.Now().After(deadline) {
					break
				}
			}
			for range 5 * mostQueued {
				j.Fail("later")
			}
			time.Sleep(2500 * time.Millisecond)
			j.End(0)
			mu.Lock()
			defer mu.Unlock()
			if len(at) < 2 || at[1].Sub(at[0]) < 2*time.Second || at[1].Sub(at[0]) > 8*time.Second {
				t.Fatalf("requests at %v", at)
			}
			first := 0
			for _, s := range c.spans {
				if strings.Contains(s.Status.Message, "the first") {
					first++
				}
			}
			if first != 1 || len(c.spans) > 2*mostQueued+10 || warnings.Load() != 1 || len(c.errs) > 0 {
				t.Errorf("%d of the refused spans came, %d in all, %d warnings, %v", first, len(c.spans),
					warnings.Load(), c.errs)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2025 03:04:35 GMT": 0,
		"2000000000": longestPause, "99999999999999999999": 0} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
