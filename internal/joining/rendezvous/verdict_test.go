package rendezvous

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// If many ranks report a failure at once, all use the words of one.
func TestAllAgreeOnOneAccount(t *testing.T) {
	const size = 5
	srv, addr := serve(t, size)
	all := joinAll(t, addr, size)
	var told [size]Verdict
	var telling sync.WaitGroup
	for r, s := range all[:size-1] {
		telling.Go(func() {
			told[r] = s.Agree(Verdict{Cause: fmt.Sprintf("cause of %d", r), View: fmt.Sprintf(" [view of %d]", r)},
				10*time.Second)
		})
	}
	heard := make(chan Verdict, 1)
	all[size-1].OnVerdict(func(v Verdict) { heard <- v })
	telling.Wait()
	told[size-1] = <-heard // a rank that has said nothing hears the verdict, too
	for r, v := range told {
		if v != told[0] {
			t.Errorf("rank %d has %+v, rank 0 %+v", r, v, told[0])
		}
	}
	first, _ := strings.CutPrefix(told[0].Cause, "cause of ")
	if told[0].View != " [view of "+first+"]" {
		t.Errorf("%+v is nobody's account", told[0])
	}
	if v := srv.Verdict(); v == nil || *v != told[0] {
		t.Errorf("the launcher has %+v", v)
	}
	if again := all[0].Agree(Verdict{Cause: "another"}, 0); again != told[0] {
		t.Errorf("asked again: %+v", again)
	}
}

// A verdict on one generation does not reach the next.
func TestAVerdictIsOfItsGeneration(t *testing.T) {
	_, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	all[0].Agree(Verdict{Cause: "of the first"}, 10*time.Second)
	o := options(0, 2)
	o.Generation = 2
	if v := join(t, addr, o).Agree(Verdict{Cause: "of the second"}, 10*time.Second); v.Cause != "of the second" {
		t.Errorf("got %+v", v)
	}
}

// If the server cannot answer, each rank uses its own words, after a bounded time.
func TestWithoutAServerEachHasItsOwnAccount(t *testing.T) {
	srv, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	srv.mu.Lock() // like a stopped launcher
	v := all[0].Agree(Verdict{Cause: "mine", View: " [my view]"}, 20*time.Millisecond)
	srv.mu.Unlock()
	if v.Cause != "mine" || v.View != " [my view]" {
		t.Errorf("got %+v", v)
	}
	srv.Close()
	if v := all[1].Agree(Verdict{Cause: "mine"}, time.Hour); v.Cause != "mine" {
		t.Errorf("got %+v", v) // or hangs
	}
}

// A rank that leaves ends nothing at once, but its words count for operations that fail afterwards.
func TestARankThatHasLeft(t *testing.T) {
	srv, addr := serve(t, 3)
	judged := make(chan Verdict, 2)
	srv.mu.Lock()
	srv.Judged = func(_ uint64, v Verdict) { judged <- v }
	srv.mu.Unlock()
	all := joinAll(t, addr, 3)
	ended := make(chan Verdict, 1)
	all[2].OnVerdict(func(v Verdict) { ended <- v })
	left := all[0].Agree(Verdict{Cause: "rank 1 has left", Left: true}, 10*time.Second)
	if left.Cause != "rank 1 has left" || !left.Left {
		t.Fatalf("got %+v", left)
	}
	if again := all[2].Agree(Verdict{Cause: "rank 0 has left", Left: true}, 10*time.Second); again != left {
		t.Errorf("another that has left: %+v", again)
	}
	select {
	case v := <-ended:
		t.Fatalf("rank 2 is told to end at once: %+v", v)
	default:
	}
	if failed := all[2].Agree(Verdict{Cause: "rank 0 has died"}, 10*time.Second); failed.Cause != left.Cause {
		t.Errorf("a failure after it: %+v", failed)
	}
	if v := <-ended; v != (Verdict{Cause: left.Cause}) {
		t.Errorf("rank 2 is told %+v", v)
	}
	if v := srv.Verdict(); v == nil || *v != (Verdict{Cause: left.Cause}) {
		t.Errorf("the launcher has %+v", v)
	}
	if v := <-judged; v != (Verdict{Cause: left.Cause}) || len(judged) > 0 {
		t.Errorf("the server tells of %+v, and %d more", v, len(judged))
	}
}
