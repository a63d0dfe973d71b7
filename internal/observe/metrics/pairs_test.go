package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestPairsAreShown checks who has waited for whom.
func TestPairsAreShown(t *testing.T) {
	j := NewJob()
	j.Form(3, 0, all(3))
	for _, told := range []struct {
		rank int
		late []feed.Late
	}{{0, []feed.Late{{Rank: 1, Nanoseconds: 2e9}}}, {0, []feed.Late{{Rank: 1, Nanoseconds: 1e9},
		{Rank: 2, Nanoseconds: 5e8}, {Rank: 3, Nanoseconds: 7e9}}}, {2, []feed.Late{{Rank: 1, Nanoseconds: 4e9}}}} {
		f := figures(1, 0)
		f.WaitedFor = told.late
		j.Take(told.rank, 1, "", f.Append(nil))
	}
	page := shown(t, j)
	has(t, page, `wait_for_seconds_total{for_rank="1",rank="0"} 3`, `wait_for_seconds_total{for_rank="1",rank="2"} 4`,
		`wait_for_seconds_total{for_rank="2",rank="0"} 0.5`)
	if n := strings.Count(page, "\nhorovod_wait_for_seconds_total{"); n != 3 {
		t.Errorf("%d pairs: %s", n, page)
	}
}

// TestPairsHaveBoundedLabels lets all of 4096 ranks wait for all others a little, and later for one of them.
func TestPairsHaveBoundedLabels(t *testing.T) {
	const ranks = 4096
	now := time.Unix(1e9, 0)
	p := &pairs{}
	for rank := range ranks {
		for k := range 16 {
			p.add(now, rank, feed.Late{Rank: (rank*17 + k) % ranks, Nanoseconds: 1e6})
		}
	}
	const most = (mostWaiters + 1) * (mostPlaces + 1)
	if n := len(p.waited); n > most {
		t.Errorf("%d pairs, at most %d are allowed", n, most)
	}
	for range 30 { // half a minute
		now = now.Add(time.Second)
		for rank := range ranks {
			p.add(now, rank, feed.Late{Rank: 4000, Nanoseconds: 1e8})
		}
	}
	if got := p.waited[pair{63, 4000}]; got != 30e8 {
		t.Errorf("rank 63 has waited for rank 4000 for %v", time.Duration(got))
	}
	if got, want := p.waited[pair{otherRank, 4000}], uint64(30e8*(ranks-mostWaiters)); got != want {
		t.Errorf("the ranks from %d on have waited for rank 4000 for %v", mostWaiters, time.Duration(got))
	}
	if n := len(p.waited); n > most {
		t.Errorf("%d pairs, at most %d are allowed", n, most)
	}
}

// TestPairsForgetSlowly checks that a rank takes the place of one that was late long ago, and not of one that still is,
// and that no pair shrinks while it has a place.
func TestPairsForgetSlowly(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := &pairs{}
	for rank := range mostPlaces {
		p.add(now, 0, feed.Late{Rank: rank + 1, Nanoseconds: 1e12})
	}
	before := uint64(0)
	for i := range 3 * 3600 {
		now = now.Add(time.Second)
		p.add(now, 0, feed.Late{Rank: 1, Nanoseconds: 5e8})
		p.add(now, 0, feed.Late{Rank: 100, Nanoseconds: 4e8})
		if got := p.waited[pair{0, 1}]; got <= before {
			t.Fatalf("after %d s rank 1 was waited for for %v, and before for %v", i, time.Duration(got),
				time.Duration(before))
		} else {
			before = got
		}
	}
	if p.places[0] != 1 || p.waited[pair{0, 100}] == 0 {
		t.Errorf("%v have places", p.places)
	}
	if p.waited[pair{0, otherRank}] == 0 {
		t.Errorf("rank 100 had a place from the start: %v", p.waited)
	}
}
