package summary

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

// conduct says what a rank does in each second, in milliseconds.
type conduct struct{ waits, busy, cpu, starved uint64 }

const ms = uint64(time.Millisecond)

// live makes a ledger follow ranks for some seconds. lateFor says for which rank a rank waits in a second (-1 for
// none), and for how many milliseconds.
func live(l *Ledger, size, seconds int, do func(rank int) conduct, lateFor func(second, rank int) (int, uint64)) {
	l.Form(size, 0, func() {})
	at := time.Unix(1e9, 0)
	l.world.formed = at
	figures := make([]feed.Figures, size)
	for s := range seconds + 1 {
		for i := range size {
			f, c := &figures[i], do(i)
			f.Waited += c.waits * ms
			f.CPU += c.cpu * ms
			f.Main.Starved += c.starved * ms
			w := feed.Work{Op: operation.Allreduce, Class: feed.ClassOf(1 << 20)}
			if len(f.Works) > 0 {
				w = f.Works[0]
			}
			w.Bytes += 1 << 20
			w.Times.Observe(int64(c.busy * ms))
			f.Works = []feed.Work{w}
			f.WaitedFor = nil
			if whom, took := lateFor(s, i); whom >= 0 && took > 0 {
				f.WaitedFor = []feed.Late{{Rank: whom, Nanoseconds: took * ms}}
			}
			told := *f
			if told.Works = []feed.Work{w}; s%3 == 1 {
				told.Works = nil // as in an answer without room for them
			}
			l.world.take(at.Add(time.Duration(s)*time.Second), i, 1, fmt.Sprintf("host-%d", i), &told)
		}
		l.world.round()
	}
}

func nobody(int, int) (int, uint64) { return -1, 0 }

func TestTheSlowRankIsNamed(t *testing.T) {
	for _, c := range []struct {
		late conduct
		want string
	}{
		{conduct{0, 40, 50, 10}, "look at the data loader and the storage of rank 3: it was busy elsewhere in 96 % " +
			"of the time, and used 0.05 cores"},
		{conduct{0, 40, 960, 10}, "less work or a faster processor for rank 3: it computed in 96 % of the time, the " +
			"others in 46 %"},
		{conduct{0, 40, 500, 490}, "a core of its own for rank 3: its main thread could run, but had no core, in 49 " +
			"% of the time, those of the others in 1 %"},
	} {
		l := &Ledger{}
		live(l, 4, 60, func(i int) conduct {
			if i == 3 {
				return c.late
			}
			return conduct{500, 40, 450, 10}
		}, func(_, i int) (int, uint64) {
			if i == 3 {
				return -1, 0
			}
			return 3, 500
		})
		got := l.Text(Auto)
		if n := strings.Count(got, "\n"); n != 4 {
			t.Errorf("%d lines", n+1)
		}
		for _, want := range []string{"where the time of 4 ranks went in 1m0s (GOROVOD_SUMMARY=0 hides this):\n",
			"computing 58 %, waiting for other ranks 38 %, communicating 4 %",
			"slowest: rank 3 on host-3; the others waited for it 30s each, 50 % of the time and 100 % of all waiting\n",
			"1 a second on each rank, with 1.05 MB/s; most of their time in allreduce up to 1MiB, 40ms each\n",
			c.want} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if l.Text(2*time.Minute) != "" {
			t.Error("there is a summary of a job that was too short")
		}
	}
}

// TestTheLivePageNamesTheSameRank has jobs whose last rank is late in each second, by a part of it. The other ranks are
// late by turns. All lack a core for a part of the time.
func TestTheLivePageNamesTheSameRank(t *testing.T) {
	for _, c := range []struct {
		size                int
		late, turn, starved uint64 // milliseconds a second
		named               bool
	}{
		{2, 375, 0, 0, true},
		{2, 375, 0, 400, true}, // two ranks with 0.2 s and 0.32 s of work a step, where other programs use the cores
		{4, 375, 0, 400, true},
		{4, 120, 0, 400, false},
		{2, 30, 0, 0, false},
		{4, 300, 900, 0, false}, // the others are as late together
		{8, 300, 100, 100, true},
	} {
		l := &Ledger{}
		last := c.size - 1
		turn := func(s, i int) uint64 {
			if i == s%last {
				return c.turn
			}
			return 0
		}
		do := func(int) conduct { return conduct{300, 20, 300, c.starved} }
		live(l, c.size, 60, do, func(s, i int) (int, uint64) {
			if i == last {
				return s % last, turn(s, s%last)
			}
			return last, c.late
		})
		var windows []straggler.Window
		for s := range straggler.Windows {
			w := make(straggler.Window, c.size)
			for i := range w {
				w[i].Starved, w[i].Late = float64(c.starved)/1000, float64(turn(s, i))/1000/float64(last)
			}
			w[last].Late = float64(c.late) / 1000
			windows = append(windows, w)
		}
		v, page := straggler.Find(windows)
		text := l.Text(Auto)
		summary := strings.Contains(text, fmt.Sprintf("slowest: rank %d ", last))
		if summary != c.named || page != c.named {
			t.Errorf("%+v: the summary names it: %v, the page: %v %+v\n%s", c, summary, page, v, text)
		}
	}
}

// TestChanceAccusesNobody has ranks that are late by turns, like ranks that share cores: a thousand jobs of several
// lengths, in which chance makes each time another rank the last one.
func TestChanceAccusesNobody(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 1))
	for n := range 1000 {
		starved := uint64(n%2) * 300
		size, seconds := 2+r.IntN(7), 8+r.IntN(60)
		last, took := make([]int, seconds+1), make([]uint64, seconds+1)
		for s := range last {
			last[s], took[s] = r.IntN(size), r.Uint64N(600)
		}
		l := &Ledger{}
		do := func(int) conduct { return conduct{300, 20, 400, starved} }
		live(l, size, seconds, do, func(s, i int) (int, uint64) {
			if i == last[s] {
				return -1, 0
			}
			return last[s], took[s]
		})
		got := l.Text(0)
		if !strings.Contains(got, "no rank stands out") || strings.Contains(got, "fewer ranks on a host, or fewer "+
			"threads") != (starved > 0) {
			t.Fatalf("job %d of seed %d, %d ranks for %d s:\n%s", n, seed, size, seconds, got)
		}
	}
}

func TestAdviceWithoutASlowRank(t *testing.T) {
	for _, c := range []struct {
		do   conduct
		want string
	}{
		{conduct{20, 10, 900, 0}, "to try: nothing here: the ranks computed in 97 % of the time"},
		{conduct{300, 50, 600, 0}, "to try: even work for all ranks: they waited for one another in 30 % of the time"},
		{conduct{20, 400, 500, 0}, "to try: compression (hvd.Compression.fp16), or gradients of several batches"},
		{conduct{900, 400, 500, 0}, "computing 0 %, waiting for other ranks 90 %, communicating 10 %"}, // they overlap
	} {
		l := &Ledger{}
		live(l, 2, 20, func(int) conduct { return c.do }, nobody)
		if got := l.Text(0); !strings.Contains(got, c.want) {
			t.Errorf("no %q in\n%s", c.want, got)
		}
	}
}

// TestOnlyWhatIsKnownIsTold has jobs without a summary, and one that forms anew.
func TestOnlyWhatIsKnownIsTold(t *testing.T) {
	l := &Ledger{}
	if l.Text(0) != "" {
		t.Error("a summary of nothing")
	}
	live(l, 1, 60, func(int) conduct { return conduct{} }, nobody)
	if l.Text(0) != "" {
		t.Error("a summary of one rank")
	}
	live(l, 3, 50, func(int) conduct { return conduct{20, 10, 900, 0} }, nobody)
	live(l, 2, 5, func(int) conduct { return conduct{20, 10, 900, 0} }, nobody)
	if got := l.Text(0); !strings.Contains(got, "of 3 ranks went in 50s") {
		t.Errorf("not the longest world: %s", got)
	}
	l = &Ledger{}
	l.Form(2, 7, func() {})
	at := time.Unix(1e9, 0)
	l.world.take(at, 0, 6, "h", &feed.Figures{}) // from the world before
	l.world.take(at, 5, 7, "h", &feed.Figures{})
	l.world.take(at, 0, 8, "h", &feed.Figures{Waited: 5e9, WaitedFor: []feed.Late{{Rank: 1, Nanoseconds: 9}}})
	l.world.take(at.Add(time.Second), 0, 9, "h", &feed.Figures{Waited: 3e9}) // after another Init all counts begin anew
	l.world.take(at.Add(2*time.Second), 0, 9, "h", &feed.Figures{Waited: 4e9, WaitedFor: []feed.Late{{Rank: 1,
		Nanoseconds: 1e9}, {Rank: 99, Nanoseconds: 1}}})
	if r := &l.world.ranks[0]; r.seconds != 1 || r.waited != 1e9 || l.world.ranks[1].charged != 1e9 {
		t.Errorf("%+v", l.world.ranks)
	}
	l.Take(0, 9, "h", []byte("damaged"))
}

// TestRounds counts how often the ranks are asked.
func TestRounds(t *testing.T) {
	l := &Ledger{}
	asked := 0
	l.Form(2, 0, func() { asked++ })
	for s := range 3600 {
		l.tick(l.world.formed.Add(time.Duration(s) * time.Second))
	}
	if asked < 350 || asked > 400 {
		t.Errorf("asked %d times in an hour", asked)
	}
	asked = 0
	l.Form(1, 0, func() { asked++ })
	l.tick(l.world.formed.Add(time.Minute))
	if asked > 0 {
		t.Error("a job of one rank is asked")
	}
}

func TestFrom(t *testing.T) {
	for value, want := range map[string]string{"": "30s true", "0": "0s false", "1": "0s true"} {
		least, on, err := From(value)
		if got := fmt.Sprint(least, on); got != want || err != nil {
			t.Errorf("%q: %s, %v", value, got, err)
		}
	}
	if _, _, err := From("yes"); err == nil || !strings.Contains(err.Error(), `GOROVOD_SUMMARY="yes"`) {
		t.Error(err)
	}
}
