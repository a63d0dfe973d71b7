package collective

import (
	"fmt"
	"testing"
	"time"
)

// tuned is a lane of which only the model can be asked.
func tuned(t Tuning) *Lane {
	l := &Lane{size: 2}
	l.Tune(t)
	return l
}

// Without measured links the choice is that of the constants, with them that of the job's own network.
func TestWayBetweenHosts(t *testing.T) {
	const gigabit = 125e6
	for _, c := range []struct {
		hosts, bytes int
		link         Link
		want         string
	}{
		{4, 16 << 10, Link{}, "doubling"},
		{4, 64 << 10, Link{}, "doubling"},
		{4, 256 << 10, Link{}, "halving"},
		{4, 1 << 20, Link{}, "ring"},
		{8, 64 << 10, Link{}, "halving"},
		{8, 1 << 20, Link{}, "halving"},
		{8, 4 << 20, Link{}, "ring"},
		// A slow wire costs more than its messages.
		{4, 4 << 10, Link{50e3, gigabit}, "doubling"},
		{4, 16 << 10, Link{50e3, gigabit}, "doubling"},
		{4, 64 << 10, Link{50e3, gigabit}, "halving"},
		{8, 64 << 10, Link{50e3, gigabit}, "halving"},
		{8, 1 << 20, Link{50e3, gigabit}, "ring"},
		// Far hosts: few journeys, unless the ring hides them behind its bytes.
		{8, 64 << 10, Link{2e6, gigabit}, "doubling"},
		{8, 256 << 10, Link{2e6, gigabit}, "doubling"},
		{8, 1 << 20, Link{2e6, gigabit}, "halving"},
		{8, 4 << 20, Link{2e6, gigabit}, "ring"},
		{8, 64 << 20, Link{2e6, gigabit}, "ring"},
		{4, 2 << 20, Link{2e6, gigabit}, "ring"},
		// 10 Gbit/s
		{4, 64 << 10, Link{30e3, 10 * gigabit}, "doubling"},
		{4, 4 << 20, Link{30e3, 10 * gigabit}, "ring"},
		// A value out of range counts as the nearest limit.
		{8, 1 << 20, Link{time.Hour, 1e15}, "doubling"},
		{8, 1 << 20, Link{-1, 1}, "ring"},
		{8, 1 << 20, Link{time.Hour, 0}, "halving"}, // unknown
	} {
		t.Run(fmt.Sprintf("%d hosts, %d bytes, %v", c.hosts, c.bytes, c.link), func(t *testing.T) {
			l := tuned(DefaultTuning.Over(c.link))
			if got, cost := l.across(c.hosts, c.bytes, 1, 1); got.String() != c.want || cost <= 0 {
				t.Errorf("%v, at a cost of %d bytes, want %s", got, cost, c.want)
			}
		})
	}
}

func TestChoices(t *testing.T) {
	for _, c := range []struct {
		hosts int
		link  Link
		want  string
	}{
		{2, Link{}, "[{doubling 262144} {ring 0}]"},
		{8, Link{}, "[{doubling 32768} {halving 2097152} {ring 0}]"},
		{8, Link{2e6, 125e6}, "[{doubling 262144} {halving 2097152} {ring 0}]"},
		{4, Link{50e3, 125e6}, "[{doubling 16384} {halving 131072} {ring 0}]"},
	} {
		if got := fmt.Sprint(Choices(c.hosts, c.link)); got != c.want {
			t.Errorf("%d hosts, %v: %s, want %s", c.hosts, c.link, got, c.want)
		}
	}
}

// The model's cost of the ring over a measured link is what a simulation of it takes.
func TestRingCostIsThatOfItsPieces(t *testing.T) {
	for _, size := range []int{2, 3, 4, 8, 16} {
		for _, latency := range []time.Duration{20e3, 200e3, 2e6, 20e6} {
			for _, rate := range []int{1 << 23, 1 << 27, 1 << 30} {
				for n := 16 << 10; n <= 256<<20; n *= 4 {
					l := tuned(DefaultTuning.Over(Link{latency, rate}))
					got := float64(l.ringCost(size, n, 1)) / float64(l.rate)
					want := simulateRing(size, n, l.piece, float64(l.message)/float64(l.rate), float64(l.rate))
					if got < 0.9*want || got > 1.1*want {
						t.Errorf("%d members, %d bytes, %v, %d B/s: %.3g s, simulated %.3g s", size, n, latency, rate,
							got, want)
					}
				}
			}
		}
	}
}

// simulateRing is how many seconds a ring takes whose members are all alike: so each receives when its successor does.
func simulateRing(size, n, piece int, latency, rate float64) (end float64) {
	share := ceilDiv(n, size)
	pieces := ceilDiv(share, piece)
	have := make([]float64, pieces) // when each piece of the last step had come
	link := 0.0                     // when the link is free
	for range 2 * (size - 1) {
		for i := range have {
			bytes := float64(min(piece, share-i*piece))
			link = max(link+pieceTime.Seconds(), have[i]) + bytes/rate
			have[i] = link + latency
		}
	}
	return have[pieces-1]
}

// A measurement changes only the settings that depend on it. Without one they stay as they are.
func TestTuningOverALink(t *testing.T) {
	before := Tuning{Chunk: 1 << 20, Piece: 4096, Message: 5000, Flat: true}
	if got := before.Over(Link{Latency: time.Millisecond}); got != before {
		t.Errorf("an unknown link makes %+v", got)
	}
	want := before
	want.Message, want.Rate = 1<<17, 1<<27
	for _, link := range []Link{{time.Millisecond, 125e6}, {950 * time.Microsecond, 110e6},
		{1100 * time.Microsecond, 150e6}} {
		if got := before.Over(link); got != want {
			t.Errorf("%v: %+v, want %+v", link, got, want)
		}
	}
}
