package rendezvous

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// answers collects the ranks' figures.
type answers chan string

func (a answers) take(rank int, generation uint64, host string, value []byte) {
	a <- fmt.Sprint(rank, " ", generation, " ", host, " ", string(value))
}

func (a answers) next(t *testing.T) string {
	t.Helper()
	select {
	case text := <-a:
		return text
	case <-time.After(10 * time.Second):
		t.Fatal("nobody tells")
		return ""
	}
}

// TestRanksTellWhenAsked checks that ranks send figures only when asked, and that a rank without figures answers, too.
func TestRanksTellWhenAsked(t *testing.T) {
	s, addr := serve(t, 2)
	got := make(answers, 10)
	s.Figures = got.take
	all := joinAll(t, addr, 2)
	all[1].OnTell(func(bool) []byte { return []byte("figures") })
	for range 3 {
		s.AskFigures()
		both := []string{got.next(t), got.next(t)}
		slices.Sort(both)
		if want := []string{"0 1 node0 ", "1 1 node1 figures"}; !slices.Equal(both, want) {
			t.Errorf("%q, not %q", both, want)
		}
		time.Sleep(10 * time.Millisecond) // rank 1 has sent 7 bytes, so it is not asked for 7 ms
	}
	if len(got) > 0 {
		t.Errorf("%q is told unasked", <-got)
	}
}

// TestOnlyInspectedRanksTellTheirStacks checks who is asked for a stack.
func TestOnlyInspectedRanksTellTheirStacks(t *testing.T) {
	s, addr := serve(t, 2)
	got := make(answers, 10)
	s.Figures = got.take
	for _, one := range joinAll(t, addr, 2) {
		one.OnTell(func(stack bool) []byte { return fmt.Append(nil, stack) })
	}
	for _, ranks := range [][]int{nil, {1}, {0, 1}, nil} {
		s.Inspect(ranks)
		s.AskFigures()
		both := []string{got.next(t), got.next(t)}
		slices.Sort(both)
		for rank, text := range both {
			want := fmt.Sprintf("%d 1 node%d %t", rank, rank, slices.Contains(ranks, rank))
			if text != want {
				t.Errorf("%q, not %q", text, want)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestRanksTellWithinTheirRate checks that a rank which has told much is not asked again at once, and that one which
// owes an answer is not asked at all.
func TestRanksTellWithinTheirRate(t *testing.T) {
	s, addr := serve(t, 1)
	got := make(answers, 10)
	s.Figures = got.take
	all := joinAll(t, addr, 1)
	hold, calls := make(chan struct{}), 0
	all[0].OnTell(func(bool) []byte { calls++; <-hold; return make([]byte, maxFigures+1) })
	for range 5 {
		s.AskFigures() // the first answer has not come
	}
	close(hold)
	got.next(t)
	for range 5 {
		s.AskFigures() // 16 KiB were sent, which is enough for 16 s
	}
	if _, err := all[0].Exchange(bounded(t), "all frames before have come", nil); err != nil || calls != 1 {
		t.Errorf("asked %d times (%v)", calls, err)
	}
}

// TestAnAnswerEachSecond checks that the second begins with the question: a rank that answers slowly can be asked again
// when the next second begins.
func TestAnAnswerEachSecond(t *testing.T) {
	s, addr := serve(t, 1)
	got := make(answers, 10)
	s.Figures = got.take
	all := joinAll(t, addr, 1)
	const bytes = 300
	all[0].OnTell(func(bool) []byte { time.Sleep(bytes * time.Millisecond); return make([]byte, bytes) })
	s.AskFigures()
	got.next(t)
	s.AskFigures()
	got.next(t)
}

// TestARankTellsUnaskedAtItsEnd checks that the launcher gets figures for which it has not asked, once.
func TestARankTellsUnaskedAtItsEnd(t *testing.T) {
	s, addr := serve(t, 2)
	got := make(answers, 10)
	s.Figures = got.take
	all := joinAll(t, addr, 2)
	all[1].OnTell(func(bool) []byte { return []byte("asked") })
	s.AskFigures()
	both := []string{got.next(t), got.next(t)}
	slices.Sort(both)
	all[1].TellLast([]byte("last"))
	all[1].Close()
	want := []string{"0 1 node0 ", "1 1 node1 asked", "1 1 node1 last"}
	if both = append(both, got.next(t)); !slices.Equal(both, want) {
		t.Errorf("%q", both)
	}
}

// TestUnaskedFiguresEndTheConnection checks that a rank cannot flood the launcher.
func TestUnaskedFiguresEndTheConnection(t *testing.T) {
	taken := 0
	for name, figures := range map[string]func(int, uint64, string, []byte){"nobody watches": nil, "not asked": func(
		int, uint64, string, []byte) {
		if taken++; taken > 1 {
			t.Error("figures that nobody has asked for are taken twice")
		}
	}} {
		t.Run(name, func(t *testing.T) {
			s, addr := serve(t, 1)
			s.Figures = figures
			all := joinAll(t, addr, 1)
			for range 2 {
				all[0].TellLast([]byte("x"))
			}
			select {
			case <-all[0].ended:
			case <-time.After(10 * time.Second):
				t.Error("the connection goes on")
			}
		})
	}
}
