package overview

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

// film is a job whose clock a test moves.
type film struct {
	*Job
	now   time.Time
	ranks []*feed.Figures
	mute  map[int]bool
	brief bool
}

func newFilm(size int) *film {
	f := &film{Job: New(), now: time.Unix(1e9, 0), mute: map[int]bool{}}
	f.Form(size, 0, func() int { return size }, nil)
	for range size {
		f.ranks = append(f.ranks, &feed.Figures{Works: []feed.Work{{Op: operation.Allreduce}}})
	}
	return f
}

// second lets a second pass, in which each rank does its part, and looks.
func (f *film) second(part func(rank int, figures *feed.Figures)) *Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(time.Second)
	for i, figures := range f.ranks {
		figures.WaitedFor, figures.Pending = nil, 0
		part(i, figures)
		figures.Pending = max(figures.Pending, uint64(len(figures.Waits)))
		if !f.mute[i] {
			told := *figures
			told.Works = append([]feed.Work(nil), figures.Works...)
			if f.brief && f.now.Unix()%5 == 2 {
				told.Works = nil // for which the answer has no room
			}
			f.take(f.now.Add(-100*time.Millisecond), i, 1, fmt.Sprint("host", i/2), &told)
		}
	}
	return f.snapshot(f.now)
}

// seconds lets n seconds pass, and returns the last look.
func (f *film) seconds(n int, part func(rank int, figures *feed.Figures)) (s *Snapshot) {
	for range n {
		s = f.second(part)
	}
	return s
}

// works is a second of work with collectives. The program computes for a share of the time.
func works(f *feed.Figures, share float64) {
	for range 100 {
		f.Works[0].Times.Observe(int64(time.Millisecond))
	}
	f.Works[0].Bytes += 1e8
	f.CPU += uint64(share * float64(time.Second))
}

func says(t *testing.T, s *Snapshot, tone Tone, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(s.Sentence, p) {
			t.Errorf("%q does not say %q", s.Sentence, p)
		}
	}
	if s.Tone != tone {
		t.Errorf("%q is said to be %s, not %s", s.Sentence, s.Tone, tone)
	}
}

func TestAJobThatKeepsPace(t *testing.T) {
	f := newFilm(4)
	f.brief = true
	pace := func(_ int, r *feed.Figures) { works(r, 0.9); r.Waited += 2e7 }
	if s := f.seconds(2, pace); len(s.Kinds) != 1 || s.Kinds[0].Count != 400 {
		t.Errorf("%+v", s.Kinds)
	}
	s := f.seconds(6, pace)
	says(t, s, Fine, "All 4 ranks keep pace", "100 collectives", "100 MB/s", "2 %")
	if len(s.Hosts) != 2 || s.Ranks[3].Host != 1 || s.Ranks[3].Waiting != 2 || s.Telling != 4 {
		t.Errorf("%+v", s)
	}
	if len(s.Kinds) != 1 || s.Kinds[0].Count != 3200 || s.Kinds[0].Mean != 1e-3 {
		t.Errorf("%+v", s.Kinds)
	}
}

// TestStepsAreTold checks step time and throughput, also of a program whose steps take longer than a reader has looked.
func TestStepsAreTold(t *testing.T) {
	f := newFilm(4)
	steps := func(_ int, r *feed.Figures) {
		works(r, 0.9)
		for range 4 {
			r.Steps.Observe(2.5e8)
		}
		r.Samples += 128
	}
	s := f.seconds(8, steps)
	says(t, s, Fine, "All 4 ranks keep pace: 250 ms a step, 100 collectives")
	if s.Step != 0.25 || s.Steps != 32 || s.Samples != 512 || s.Column.Step != 0.25 {
		t.Errorf("a step takes %v s, there were %d, %v samples a second", s.Step, s.Steps, s.Samples)
	}
	if s = f.seconds(8, func(_ int, r *feed.Figures) { works(r, 0.9) }); s.Step != 0.25 || s.Samples != 0 {
		t.Errorf("between steps one takes %v s, with %v samples a second", s.Step, s.Samples)
	}
	if s = f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9); r.Steps.Observe(9e9) }); s.Step != 9 {
		t.Errorf("a step takes %v s now, not 9", s.Step)
	}
	f = newFilm(2)
	for _, r := range f.ranks {
		r.Steps.Observe(3e10)
		r.Steps.Observe(5e10)
	}
	if s = f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9) }); s.Step != 40 || s.Steps != 2 {
		t.Errorf("of %d steps one takes %v s", s.Steps, s.Step)
	}
}

// TestWhoWaitsForWhom checks the pairs of the last second, of waits that have ended and of one that goes on.
func TestWhoWaitsForWhom(t *testing.T) {
	f := newFilm(4)
	wait := func(i int, r *feed.Figures) {
		works(r, 0.5)
		switch i {
		case 0:
			r.WaitedFor = []feed.Late{{Rank: 1, Nanoseconds: 1e8}, {Rank: 2, Nanoseconds: 3e8}}
		case 1:
			r.WaitedFor = []feed.Late{{Rank: 2, Nanoseconds: 2e8}}
		case 3:
			r.WaitedFor = []feed.Late{{Rank: 0, Nanoseconds: 1e6}} // less than a percent
		}
		r.Waited += 4e8
	}
	whom := func(s *Snapshot) (pairs string) {
		for _, r := range s.Ranks {
			pairs += fmt.Sprintf("%d:%d ", r.Whom, r.WhomShare)
		}
		return pairs
	}
	if got := whom(f.seconds(3, wait)); got != "2:30 2:20 -1:0 -1:0 " {
		t.Errorf("pairs %s", got)
	}
	if got := whom(f.second(func(_ int, r *feed.Figures) { works(r, 0.5) })); got != "-1:0 -1:0 -1:0 -1:0 " {
		t.Errorf("pairs %s a second later", got)
	}
	s := f.seconds(3, func(i int, r *feed.Figures) {
		if r.Waits = nil; i != 2 {
			r.Waited += 1e9
			r.Waits = []feed.Wait{{Name: "x", Op: "ALLREDUCE", Age: uint64(f.now.Unix()-1e9-4) * 1e9}}
		}
	})
	if got := whom(s); got != "2:100 2:100 -1:0 2:100 " {
		t.Errorf("pairs %s in %q", got, s.Sentence)
	}
}

// straggling is a second in which the other ranks wait for rank 3 in 40 % of the time.
func straggling(i int, r *feed.Figures, does feed.Thread) {
	r.Main.Looks += 40
	if i == 3 {
		works(r, float64(does.Running)/1e9)
		r.Main.Running += does.Running
		r.Main.Starved += does.Starved
		r.Main.Asleep += does.Asleep
		r.Main.Reading += does.Reading
		r.Main.Locked += does.Locked
		return
	}
	works(r, 0.5)
	r.Main.Running += 5e8
	r.Main.Locked += 16
	r.Waited += 4e8
	r.WaitedFor = []feed.Late{{Rank: 3, Nanoseconds: 4e8}}
}

// TestStragglers checks that a late rank is named with its kind, within five seconds.
func TestStragglers(t *testing.T) {
	for kind, c := range map[straggler.Kind]struct {
		does feed.Thread
		says string
	}{
		straggler.Sleeps:   {feed.Thread{Running: 5e8, Asleep: 16}, "it sleeps in 40 % of the time"},
		straggler.Reads:    {feed.Thread{Running: 5e8, Reading: 16}, "it waits for data in 40 % of the time"},
		straggler.Locked:   {feed.Thread{Running: 5e8, Locked: 16}, "it waits for another thread of its own"},
		straggler.Blocked:  {feed.Thread{Running: 5e8}, "it sleeps, or waits for data or a lock"},
		straggler.Computes: {feed.Thread{Running: 9e8}, "it computes (0.9 cores)"},
		straggler.Starves: {feed.Thread{Running: 5e8, Starved: 4e8},
			"its main thread gets no core in 40 % of the time"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			f := newFilm(4)
			well := func(_ int, r *feed.Figures) { works(r, 0.9); r.Main.Running += 9e8; r.Main.Looks += 40 }
			f.seconds(10, well)
			s := f.seconds(5, func(i int, r *feed.Figures) { straggling(i, r, c.does) })
			says(t, s, Slow, "The others wait for rank 3 on host1 in", c.says)
			if s.Straggler == nil || s.Straggler.Rank != 3 || s.Straggler.Kind != kind {
				t.Errorf("%+v", s.Straggler)
			}
			if s.Ranks[3].Late != 40 || s.Ranks[3].Waiting != 0 || s.Ranks[0].Waiting != 40 {
				t.Errorf("%+v", s.Ranks)
			}
			s = f.seconds(window+1, well)
			says(t, s, Fine, "keep pace")
			if s.Straggler != nil {
				t.Errorf("%+v", s.Straggler)
			}
		})
	}
}

// TestNoKindUntilItIsKnown checks a rank that is late from the start, whose figures say only after the first second
// what its main thread does.
func TestNoKindUntilItIsKnown(t *testing.T) {
	f := newFilm(4)
	named := false
	for range 12 {
		first := f.now.Unix() < 1e9+2
		s := f.second(func(i int, r *feed.Figures) {
			straggling(i, r, feed.Thread{Running: 1e7, Asleep: 16})
			if first {
				r.Main = feed.Thread{}
			}
		})
		if s.Straggler == nil {
			continue
		}
		if strings.Contains(s.Sentence, "computes") {
			t.Errorf("it sleeps, and %q", s.Sentence)
		}
		switch s.Straggler.Kind {
		case straggler.Unknown:
			says(t, s, Slow, "The others wait for rank 3 on host1 in 40 % of the time.")
			if text, err := json.Marshal(s.Straggler); err != nil || strings.Contains(string(text), "kind") {
				t.Errorf("%s, %v", text, err)
			}
		case straggler.Sleeps:
			if !named {
				t.Error("it is known at once: the test shows nothing")
			}
		default:
			t.Errorf("it sleeps, and %+v", s.Straggler)
		}
		named = true
	}
}

// TestASlowConnectionIsNamed checks a rank whose data goes out slowly while nobody is late.
func TestASlowConnectionIsNamed(t *testing.T) {
	f := newFilm(4)
	s := f.seconds(8, func(i int, r *feed.Figures) {
		works(r, 0.3)
		r.Works[0].Times.Sum += 5e8
		r.Link = feed.Link{To: "10.0.0.7", Busy: r.Link.Busy + 2e7, Bytes: r.Link.Bytes + 1e7}
		if i == 2 {
			r.Link.Busy += 48e7
		}
	})
	says(t, s, Slow, "The connection from rank 2 on host1 to 10.0.0.7 is slow", "in 50 % of the time, at 20 MB/s")
	if s.Straggler == nil || s.Straggler.Kind != straggler.SlowLink {
		t.Errorf("%+v", s.Straggler)
	}
}

// TestChanceIsNoStraggler checks ranks that are late in turn, as on cores that they share.
func TestChanceIsNoStraggler(t *testing.T) {
	f := newFilm(4)
	n := 0
	s := f.seconds(40, func(i int, r *feed.Figures) {
		works(r, 0.5)
		r.Waited += 2e8
		r.WaitedFor = []feed.Late{{Rank: (i + 1 + n/4%3) % 4, Nanoseconds: 2e8}}
		n++
	})
	says(t, s, Slow, "Ranks wait for one another in", "for none of them most")
	if s.Straggler != nil {
		t.Errorf("%+v", s.Straggler)
	}
}

// hangs makes all ranks but some wait in an operation, since the film's time from.
func (f *film) hangs(from time.Time, set int, missing ...int) func(int, *feed.Figures) {
	lacks := map[int]bool{}
	for _, m := range missing {
		lacks[m] = true
	}
	return func(i int, r *feed.Figures) {
		if !lacks[i] {
			age := uint64(f.now.Sub(from))
			r.Waited += uint64(time.Second)
			r.SetWaits([]feed.Wait{{Set: set, Name: "layer4.conv2.weight", Op: "ALLREDUCE", Age: age}})
		}
	}
}

func TestAJobThatHangs(t *testing.T) {
	f := newFilm(4)
	f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9) })
	s := f.seconds(3, f.hangs(f.now, 0, 3))
	says(t, s, Stuck, "All wait for rank 3 on host1, in `layer4.conv2.weight` (ALLREDUCE), for 3.0 s: it sleeps")
	if len(s.Open) != 1 || s.Open[0].Missing != "3" || s.Open[0].Waits != "0-2" || s.Ranks[3].Late != 100 ||
		s.Ranks[0].Waiting != 100 || s.Ranks[3].Waiting != 0 {
		t.Errorf("%+v", s)
	}
	f = newFilm(5)
	s = f.seconds(3, f.hangs(f.now, 0, 1, 3, 4))
	says(t, s, Stuck, "All wait for ranks 1, 3-4, in")
	f = newFilm(4)
	s = f.seconds(3, f.hangs(f.now, 2, 0, 1, 3)) // who else is in the process set is not known
	says(t, s, Stuck, "Rank 2 waits for other ranks, in `layer4.conv2.weight` (ALLREDUCE, process set 2)")
}

// TestALateMemberOfAProcessSetIsNamed checks that only members are late, and that nobody is while a rank has not told
// its sets.
func TestALateMemberOfAProcessSetIsNamed(t *testing.T) {
	f := newFilm(4)
	f.mute[3] = true
	hangs := f.hangs(f.now.Add(time.Second), 1, 1, 2, 3)
	part := func(i int, r *feed.Figures) {
		if i < 2 {
			r.Sets = []int{1}
		}
		r.CPU += 1e6
		hangs(i, r)
	}
	says(t, f.seconds(3, part), Stuck,
		"Rank 0 waits for other ranks, in `layer4.conv2.weight` (ALLREDUCE, process set 1)")
	f.mute[3] = false
	s := f.seconds(3, part)
	says(t, s, Stuck, "Rank 0 waits for rank 1 on host0, in `layer4.conv2.weight` (ALLREDUCE, process set 1)",
		"it sleeps")
	if s.Straggler == nil || s.Straggler.Rank != 1 || s.Open[0].Missing != "1" || s.Ranks[0].Whom != 1 {
		t.Errorf("%+v, %+v, %+v", s.Straggler, s.Open, s.Ranks)
	}
}

// waitsIn makes each rank wait in the operations that ops has for it, for seconds, with its main thread in a lock.
func (f *film) waitsIn(ops map[int][]feed.Wait) func(int, *feed.Figures) {
	began := f.now
	return func(i int, r *feed.Figures) {
		var waits []feed.Wait
		for _, w := range ops[i] {
			w.Age += uint64(f.now.Sub(began))
			waits = append(waits, w)
		}
		r.SetWaits(waits)
		r.Main.Running += 1e6
		r.Main.Looks += 40
		if waits != nil {
			r.Main.Locked += 40
			r.Waited += 1e9
		} else {
			r.Main.Asleep += 40
		}
		r.CPU += 1e6
	}
}

// TestRanksThatWaitThemselvesAreNotBlamed checks process sets, where one late rank holds up ranks for which others
// wait.
func TestRanksThatWaitThemselvesAreNotBlamed(t *testing.T) {
	barrier := []feed.Wait{{Name: "barrier.noname", Op: "BARRIER"}}
	inSet := []feed.Wait{{Set: 1, Name: "d", Op: "ALLREDUCE"}}
	for name, set := range map[string][]feed.Wait{
		"the set is younger": inSet,
		"the set is older":   {{Set: 1, Name: "d", Op: "ALLREDUCE", Age: 1e9}},
	} {
		f := newFilm(3)
		f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9) })
		s := f.seconds(4, f.waitsIn(map[int][]feed.Wait{0: barrier, 1: set}))
		says(t, s, Stuck, "All wait for rank 2 on host1, in `barrier.noname` (BARRIER), for 4.0 s: it sleeps in 100 % "+
			"of the time. Rank 1 waits, too, in `d` (ALLREDUCE, process set 1).")
		if s.Straggler == nil || s.Straggler.Rank != 2 {
			t.Errorf("%s: %+v", name, s.Straggler)
		}
	}
	f := newFilm(3)
	third := []feed.Wait{{Set: 2, Name: "e", Op: "ALLREDUCE"}}
	s := f.seconds(4, f.waitsIn(map[int][]feed.Wait{0: barrier, 1: inSet, 2: third}))
	says(t, s, Stuck, "Ranks wait for one another, for 4.0 s: rank 0 in `barrier.noname` (BARRIER), ranks 1-2 in "+
		"other operations.")
}

// TestADeadlockIsNamed checks ranks that submit two operations in different orders, and one that has submitted an
// operation and then sleeps: it is late, though it is in an operation.
func TestADeadlockIsNamed(t *testing.T) {
	f := newFilm(3)
	one, other := []feed.Wait{{Name: "d1", Op: "ALLREDUCE"}}, []feed.Wait{{Name: "d2", Op: "ALLREDUCE"}}
	s := f.seconds(4, f.waitsIn(map[int][]feed.Wait{0: other, 1: one, 2: other}))
	says(t, s, Stuck, "Ranks wait for one another, for 4.0 s: ranks 0, 2 in `d2` (ALLREDUCE), rank 1 in `d1` "+
		"(ALLREDUCE).")
	if s.Straggler != nil {
		t.Errorf("%+v", s.Straggler)
	}
	f = newFilm(3)
	wait := f.waitsIn(map[int][]feed.Wait{0: one, 1: other, 2: one})
	s = f.seconds(4, func(i int, r *feed.Figures) {
		wait(i, r)
		if i == 1 {
			r.Main.Locked, r.Main.Asleep = 0, r.Main.Asleep+40
		}
	})
	says(t, s, Stuck, "All wait for rank 1 on host0, in `d1` (ALLREDUCE), for 4.0 s: it sleeps in 100 % of the time.")
}

// TestADeathIsTold checks the sentence between a rank's death and the end of its job, or its next world.
func TestADeathIsTold(t *testing.T) {
	f := newFilm(3)
	f.now = time.Now().Add(-3 * time.Second)
	well := func(_ int, r *feed.Figures) { works(r, 0.9) }
	f.seconds(3, well)
	f.Died(1, "host0", "was killed by signal 9 (SIGKILL)", "")
	f.Died(2, "host1", "exited with code 1", "")
	says(t, f.second(well), Stuck, "Rank 1 on host0 was killed by signal 9 (SIGKILL), 1.0 s ago.")
	f.Form(3, 0, func() int { return 3 }, nil)
	says(t, f.seconds(3, well), Fine, "All 3 ranks keep pace")
	f.Died(2, "host1", "exited with code 1", "rank 1 is lost"+strings.Repeat(".", mostText)+"\nmore")
	if s := f.second(well); !strings.Contains(s.Sentence, "; it had reported: rank 1 is lost....") ||
		len(s.Sentence) > mostText {
		t.Errorf("%q", s.Sentence)
	}
}

// TestAFailureIsTold checks the sentence between a failure whose words are the ranks' own and the next Init.
func TestAFailureIsTold(t *testing.T) {
	f := newFilm(3)
	f.now = time.Now().Add(-3 * time.Second)
	well := func(_ int, r *feed.Figures) { works(r, 0.9) }
	f.seconds(3, well)
	f.Broke(1, "rank 1 on host a (pid 7) has died\nand more")
	f.Broke(1, "rank 0 on host a (pid 6) has died")
	s := f.second(well)
	says(t, s, Stuck, "The operations have failed, 1.0 s ago: rank 1 on host a (pid 7) has died.")
	if n := len(s.History); s.History[n-1].Text != "the operations have failed: rank 1 on host a (pid 7) has died" {
		t.Errorf("%+v", s.History)
	}
	f.take(f.now, 0, 2, "host0", f.ranks[0])
	if s := f.second(well); strings.Contains(s.Sentence, "failed") {
		t.Errorf("after another Init: %q", s.Sentence)
	}
}

// TestAFailureBeforeFigures: a failure before any rank has told of itself ends with the next Init, too.
func TestAFailureBeforeFigures(t *testing.T) {
	f := newFilm(3)
	well := func(_ int, r *feed.Figures) { works(r, 0.9) }
	f.Broke(1, "rank 1 on host a (pid 7) has died")
	for number := range f.ranks {
		f.take(f.now, number, 2, "host0", f.ranks[number])
	}
	if s := f.second(well); strings.Contains(s.Sentence, "failed") {
		t.Errorf("after another Init: %q", s.Sentence)
	}
}

// TestRanksThatNoLongerAnswer checks ranks that are all stopped.
func TestRanksThatNoLongerAnswer(t *testing.T) {
	f := newFilm(3)
	f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9) })
	f.mute = map[int]bool{0: true, 1: true, 2: true}
	s := f.seconds(5, func(int, *feed.Figures) {})
	says(t, s, Slow, "No rank has answered for 5.1 s: their processes have ended or are stopped, or their hosts are "+
		"away.")
}

// TestAJoinIsNoHang checks ranks that have no more data while the others go on, and then a rank for which all joined
// ranks wait.
func TestAJoinIsNoHang(t *testing.T) {
	f := newFilm(4)
	f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9) })
	began := f.now
	some := func(joined int, goesOn bool) func(int, *feed.Figures) {
		return func(i int, r *feed.Figures) {
			r.Waits = nil
			if i < joined {
				r.SetWaits([]feed.Wait{{Name: "join.noname", Op: "JOIN", Age: uint64(f.now.Sub(began))}})
			}
			if goesOn {
				works(r, 0.9)
				if i >= joined {
					r.SetWaits([]feed.Wait{{Name: "gradient", Op: "ALLREDUCE", Age: uint64(300 * time.Millisecond)}})
				}
			}
		}
	}
	s := f.seconds(4, some(1, true))
	says(t, s, Fine, "Rank 0 has no more data (join) for 4.0 s; the others go on, with 100 collectives a second.")
	if s.Straggler != nil || s.Ranks[3].Late > 0 || len(s.Open) != 2 || s.Open[1].Missing != "" {
		t.Errorf("%+v", s)
	}
	s = f.seconds(4, some(3, true))
	says(t, s, Fine, "Ranks 0-2 have no more data (join) for 8.0 s; rank 3 on host1 goes on, with 100 collectives a")
	s = f.seconds(window+1, some(3, false))
	says(t, s, Slow, "All wait for rank 3 on host1, in `join.noname` (JOIN), for 15.0 s")
}

// TestAfterALongWait checks what is said once ranks go on that have waited long.
func TestAfterALongWait(t *testing.T) {
	f := newFilm(4)
	well := func(_ int, r *feed.Figures) { works(r, 0.9); r.Waits = nil }
	f.seconds(3, well)
	f.seconds(10, f.hangs(f.now, 0, 3))
	f.second(func(i int, r *feed.Figures) {
		well(i, r)
		if i != 3 {
			r.WaitedFor = []feed.Late{{Rank: 3, Nanoseconds: 10e9}}
		}
	})
	s := f.seconds(2, well)
	says(t, s, Fine, "All 4 ranks go on; until 3.0 s ago they waited for rank 3 on host1, for 10.0 s.")
	s = f.seconds(window, well)
	says(t, s, Fine, "All 4 ranks keep pace", "and 0 % of the time waiting")
}

// TestTheNameStaysWhenTheLateRankHasCome checks that the sentence after a long wait still has the name of the rank,
// though it was no longer missing at the end.
func TestTheNameStaysWhenTheLateRankHasCome(t *testing.T) {
	f := newFilm(4)
	well := func(_ int, r *feed.Figures) { works(r, 0.9); r.Waits = nil }
	f.seconds(3, well)
	from := f.now
	f.seconds(10, f.hangs(from, 0, 3))
	says(t, f.second(f.hangs(from, 0)), Stuck, "wait for other ranks, in")
	says(t, f.seconds(2, well), Fine, "All 4 ranks go on; until 2.0 s ago they waited for rank 3 on host1, for 11.0 s.")
	f.seconds(window, well)
	from = f.now
	f.seconds(2, f.hangs(from, 0))
	says(t, f.seconds(2, well), Fine, "they waited for other ranks, for 2.0 s.")
}

// TestSentencesObeyNoName checks that control characters in names reach no terminal through a text for people.
func TestSentencesObeyNoName(t *testing.T) {
	const evil, shown = "a\x1b[2J\x07\\b", `a\x1b[2J\a\b`
	f := newFilm(2)
	f.Note(evil)
	f.End(Ending{Text: evil})
	s := f.seconds(3, func(i int, r *feed.Figures) {
		works(r, 0.9)
		if r.Stack = []feed.Frame{{File: evil, Func: evil, Line: 1}}; i == 0 {
			r.SetWaits([]feed.Wait{{Name: evil, Op: "ALLREDUCE", Age: 5e9}})
		}
	})
	says(t, s, Stuck, "All wait for rank 1 on host0, in `"+shown+"` (ALLREDUCE)")
	at := shown + " (" + shown + ":1)"
	if s.Where == nil || !strings.Contains(s.Where.Text, at) || s.Where.Frames[0] != at {
		t.Errorf("%+v", s.Where)
	}
	if s.History[0].Text != shown || f.Ended().Text != shown || s.Open[0].Name != evil {
		t.Errorf("%v, %q, %q", s.History, f.Ended().Text, s.Open[0].Name)
	}
}

// TestAfterALongWaitInLongSteps checks that one long wait is not taken for many, where steps take three seconds and
// the ranks wait for moments in each.
func TestAfterALongWaitInLongSteps(t *testing.T) {
	f := newFilm(4)
	n := 0
	steps := func(i int, r *feed.Figures) {
		r.Waits = nil
		r.CPU += 9e8
		if i == 0 {
			n++
		}
		if n%3 == 0 {
			works(r, 0)
			if i != 2 {
				r.WaitedFor = []feed.Late{{Rank: 2, Nanoseconds: 2e4}}
			}
		}
	}
	f.seconds(9, steps)
	f.seconds(10, f.hangs(f.now, 0, 3))
	f.second(func(i int, r *feed.Figures) {
		r.Waits = nil
		works(r, 0.9)
		if i != 3 {
			r.WaitedFor = []feed.Late{{Rank: 3, Nanoseconds: 10e9}}
		}
	})
	for range window - 2 {
		says(t, f.second(steps), Fine, "All 4 ranks go on; until")
	}
	for range 2 * straggler.MostWindows {
		says(t, f.second(steps), Fine, "All 4 ranks keep pace")
	}
}

// TestLongWaitsInTurn checks ranks that are late in turn by more than a second in each step of two seconds.
func TestLongWaitsInTurn(t *testing.T) {
	f := newFilm(4)
	for step := range 12 {
		late := step % 4
		s := f.second(f.hangs(f.now.Add(-time.Second), 0, late))
		says(t, s, Stuck, fmt.Sprintf("All wait for rank %d on", late))
		s = f.second(func(i int, r *feed.Figures) {
			r.Waits = nil
			works(r, 0.5)
			if i != late {
				r.Waited += 5e8
				r.WaitedFor = []feed.Late{{Rank: late, Nanoseconds: 15e8}}
			}
		})
		if step > 3 {
			says(t, s, Slow, "Ranks wait for one another in 80 % of the time, for none of them most")
		}
	}
}

// TestLongSteps checks a rank that is late by half a second in steps of two seconds.
func TestLongSteps(t *testing.T) {
	f := newFilm(4)
	s := f.seconds(6, func(i int, r *feed.Figures) {
		if f.now.Unix()%2 != 0 {
			return
		}
		works(r, 0.5)
		if i != 3 {
			r.Waited += 5e8
			r.WaitedFor = []feed.Late{{Rank: 3, Nanoseconds: 5e8}}
		}
	})
	says(t, s, Slow, "The others wait for rank 3 on host1 in 30 % of the time")
}

// TestTheFirstSeconds checks that nothing is said of the time before somebody looks, though other readers may have
// asked the ranks then.
func TestTheFirstSeconds(t *testing.T) {
	f := newFilm(4)
	f.seconds(1, func(i int, r *feed.Figures) { works(r, 0.9) })
	f.now = f.now.Add(9 * time.Second)
	f.begin(f.now)
	f.mute = map[int]bool{0: true, 1: true, 2: true, 3: true} // nobody has answered yet
	s := f.second(func(i int, r *feed.Figures) { works(r, 0.9) })
	says(t, s, Fine, "No rank has told what it does yet")
	if s.Ranks[0].Silent != -1 {
		t.Errorf("%+v", s.Ranks[0])
	}
	f.mute = nil
	s = f.second(func(i int, r *feed.Figures) { // in nine seconds
		works(r, 0.9)
		r.Waited += 9e9
		if i != 3 {
			r.WaitedFor = []feed.Late{{Rank: 3, Nanoseconds: 9e9}}
		}
	})
	says(t, s, Fine, "how fast they are is known in a second")
	s = f.second(func(i int, r *feed.Figures) { works(r, 0.9) })
	says(t, s, Fine, "All 4 ranks keep pace: 100 collectives a second", "0 % of the time waiting")
	if s.Ranks[0].Waiting != 0 || s.Ranks[3].Late != 0 {
		t.Errorf("%+v", s.Ranks)
	}
}

// TestRanksThatGoApart checks what it costs if each of very many ranks waits in operations of its own.
func TestRanksThatGoApart(t *testing.T) {
	const ranks = 4096
	f := newFilm(ranks)
	apart := func(i int, r *feed.Figures) {
		var waits []feed.Wait
		for k := range feed.MaxWaits {
			waits = append(waits, feed.Wait{Name: fmt.Sprint(i, ".", k), Op: "ALLREDUCE", Age: 2e9})
		}
		r.SetWaits(waits)
	}
	s := f.second(apart)
	f.mu.Lock()
	defer f.mu.Unlock()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	groups := f.groups(f.now)
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<20 || len(groups) != ranks*feed.MaxWaits {
		t.Errorf("%d MB for %d operations", spent>>20, len(groups))
	}
	says(t, s, Stuck, "Ranks wait for one another")
}

func TestASilentRankIsNamed(t *testing.T) {
	f := newFilm(4)
	f.seconds(3, func(_ int, r *feed.Figures) { works(r, 0.9) })
	f.mute[1] = true
	s := f.seconds(5, f.hangs(f.now, 0, 1))
	says(t, s, Stuck, "All wait for rank 1 on host0", "it does not answer")
	if s.Telling != 3 || s.Ranks[1].Silent < 4 {
		t.Errorf("%+v", s)
	}
}

// TestNobodyIsBlamedInDoubt checks ranks whose lists of operations are not complete, or are older than the operation.
func TestNobodyIsBlamedInDoubt(t *testing.T) {
	f := newFilm(3)
	wait := f.hangs(f.now, 0, 2)
	f.seconds(2, wait)
	s := f.second(func(i int, r *feed.Figures) {
		wait(i, r)
		if i == 2 {
			var many []feed.Wait
			for k := range feed.MaxWaits + 1 {
				many = append(many, feed.Wait{Name: fmt.Sprint("other ", k), Op: "ALLREDUCE"})
			}
			r.Pending = uint64(len(many))
			r.SetWaits(many)
		}
	})
	for _, o := range s.Open {
		if o.Name == "layer4.conv2.weight" && o.Missing != "" {
			t.Errorf("%+v", o)
		}
	}
}

// TestFormingBeginsWithItsCause checks since when a world forms: the job's start, a death, or now.
func TestFormingBeginsWithItsCause(t *testing.T) {
	j := New()
	start := j.formed
	form := func() { j.Form(2, 0, func() int { return 2 }, nil) }
	if form(); start.IsZero() || !j.formed.Equal(start) {
		t.Errorf("the first world forms since %v, not %v", j.formed, start)
	}
	j.Died(1, "a", "was killed", "")
	died := j.death.at
	if form(); !j.formed.Equal(died) {
		t.Errorf("after a death it forms since %v, not %v", j.formed, died)
	}
	before := time.Now()
	if form(); j.formed.Before(before) {
		t.Errorf("without a death it forms since %v, before %v", j.formed, before)
	}
}

func TestWorldsAndHistory(t *testing.T) {
	f := newFilm(4)
	s := f.second(func(int, *feed.Figures) {})
	if len(s.History) != 1 || !strings.Contains(s.History[0].Text, "all 4 ranks have joined") {
		t.Errorf("%+v", s.History)
	}
	f.Form(3, 1<<20, func() int { return 2 }, nil)
	f.ranks = f.ranks[:3]
	s = f.second(func(int, *feed.Figures) {}) // what they tell is of the earlier world
	says(t, s, Fine, "2 of 3 ranks have joined")
	if s.World != 2 || s.Telling != 0 || !strings.Contains(s.History[1].Text, "formed anew, with 3 ranks") {
		t.Errorf("%+v", s)
	}
	for i := range 2 * mostEvents {
		f.Note(fmt.Sprint(i) + strings.Repeat("ä", 2*mostText))
	}
	s = f.second(func(int, *feed.Figures) {})
	if n := len(s.History); n != mostEvents || len([]rune(s.History[n-1].Text)) != mostText {
		t.Errorf("%d events, of %d letters", n, len(s.History[n-1].Text))
	}
}

// TestNobodyAsksUnwatched checks that ranks are asked only while somebody looks.
func TestNobodyAsksUnwatched(t *testing.T) {
	j, asked := New(), 0
	j.Form(2, 0, func() int { return 2 }, func() { asked++ })
	j.tick(time.Now())
	if text, _ := j.Last(false); asked != 0 || text != nil {
		t.Errorf("asked %d times, and made %s", asked, text)
	}
	leave := j.Follow()
	if asked != 1 {
		t.Errorf("a new reader has asked %d times", asked)
	}
	_, next := j.Last(false)
	j.tick(time.Now())
	<-next
	leave()
	leave()
	j.tick(time.Now())
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestManyRanks checks how long a Snapshot of 4096 ranks takes, and how large it is.
func TestManyRanks(t *testing.T) {
	const ranks = 4096
	f := newFilm(ranks)
	var s *Snapshot
	var spent time.Duration
	for range 30 {
		began := time.Now()
		s = f.second(func(i int, r *feed.Figures) { straggling(i, r, feed.Thread{Running: 9e8}) })
		spent = time.Since(began)
	}
	began := time.Now()
	text, err := json.Marshal(s)
	past := f.Past()
	t.Logf("%d ranks: a round takes %v, the JSON %v; it has %d bytes, and the past %d", ranks, spent, time.Since(began),
		len(text), len(past))
	says(t, s, Slow, "The others wait for rank 3 on host1")
	if err != nil || len(f.past.columns)*ranks > mostCells || len(text) > 1<<20 {
		t.Errorf("%v; %d columns", err, len(f.past.columns))
	}
}

func TestNumbers(t *testing.T) {
	for want, list := range map[string][]int{"": nil, "3": {3}, "0-1": {0, 1}, "0-2, 5, 7-8": {0, 1, 2, 5, 7, 8},
		"0, 2, 4, 6, 8, 10, 12, 14 and 2 more": {0, 2, 4, 6, 8, 10, 12, 14, 16, 18}} {
		if got := numbers(list); got != want {
			t.Errorf("%v: %q, not %q", list, got, want)
		}
	}
}
