package metrics

import (
	"math"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// pairs says which rank has waited for which. So that there are few labels, only the ranks for which the others have
// waited most of late have places of their own, mostPlaces of them; waits for all others are added up.
type pairs struct {
	waited map[pair]uint64 // nanoseconds
	places []int           // the ranks that have one
	recent map[int]fading  // how much ranks were waited for
}

// pair has the labels of who waits and for whom; otherRank is for all other ranks.
type pair struct{ rank, late int }

const (
	otherRank  = -1
	mostPlaces = 8
	// mostWaiters is the number of ranks that are told apart as those who wait.
	mostWaiters = 64
	// halfLife is how long it takes until a wait counts half as much for a place.
	halfLife = 5 * time.Minute
	// ahead is how much more a rank must have been waited for than another one whose place it takes, so that ranks
	// that are late in turn do not change places all the time.
	ahead = 2
)

// fading is a sum of nanoseconds that halves within halfLife.
type fading struct {
	sum float64
	at  time.Time
}

func (f fading) now(now time.Time) float64 {
	return f.sum * math.Exp2(-now.Sub(f.at).Seconds()/halfLife.Seconds())
}

// add adds what a rank has waited for another one.
func (p *pairs) add(now time.Time, rank int, late feed.Late) {
	if p.waited == nil {
		p.waited, p.recent = map[pair]uint64{}, map[int]fading{}
	}
	sum := p.recent[late.Rank].now(now) + float64(late.Nanoseconds)
	p.recent[late.Rank] = fading{sum, now}
	key := pair{rank, otherRank}
	if rank >= mostWaiters {
		key.rank = otherRank
	}
	if p.place(now, late.Rank, sum) {
		key.late = late.Rank
	}
	p.waited[key] += late.Nanoseconds
}

// place reports whether a rank has a place, and gives it one if it should have one. The pairs of the rank that loses
// its place are gone; should it get one again, they begin at 0, as counters may.
func (p *pairs) place(now time.Time, rank int, sum float64) bool {
	least, at := math.Inf(1), -1
	for i, r := range p.places {
		if r == rank {
			return true
		}
		if s := p.recent[r].now(now); s < least {
			least, at = s, i
		}
	}
	if len(p.places) < mostPlaces {
		p.places = append(p.places, rank)
		return true
	}
	if sum < ahead*least {
		return false
	}
	for k := range p.waited {
		if k.late == p.places[at] {
			delete(p.waited, k)
		}
	}
	p.places[at] = rank
	return true
}
