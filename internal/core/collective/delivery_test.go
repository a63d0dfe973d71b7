package collective

import (
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// play lets d count through n chunks. `each` says how long each step takes.
func play(d *delivery, class int, n uint64, each func(streamed bool, p transport.Phase) time.Duration) {
	t := &d.trials[class]
	for ; n > 0; n-- {
		for p := range transport.NumPhases {
			if streamed, timed := d.trial(t.chunks); timed {
				d.took(class, t.chunks, p, 1000, each(streamed, p))
			}
		}
		t.chunks++
	}
}

func TestDeliveryKeepsTheFasterWay(t *testing.T) {
	together := func(streamed bool, p transport.Phase) time.Duration {
		if streamed {
			return 40
		}
		return 20
	}
	// Writing past the caches is almost twice as fast.
	far := func(streamed bool, _ transport.Phase) time.Duration {
		if streamed {
			return 50
		}
		return 90
	}
	// Writing past the caches is a little better: by a tenth or more, but not by half.
	near := func(streamed bool, _ transport.Phase) time.Duration {
		if streamed {
			return 20
		}
		return 25
	}
	const (
		second    = trialFirst + trialCycle + 6 // the last chunk of the second cycle that is measured
		trialEnds = trialFirst + trialCycles*trialCycle
	)
	var d delivery
	play(&d, 1, second, far)
	if d.streamed {
		t.Fatal("decided by one cycle")
	}
	play(&d, 1, 1, far)
	if !d.streamed {
		t.Fatal("memory is much faster, and is not taken at once")
	}
	play(&d, 1, trialEvery-second-1, far) // nothing changes any more
	play(&d, 1, second, together)
	if !d.streamed {
		t.Fatal("changed its mind without a trial")
	}
	play(&d, 1, 1, together)
	if d.streamed {
		t.Fatal("the caches are much faster, and are not taken at once")
	}
	play(&d, 1, trialEvery-second-1, together)
	play(&d, 1, trialEnds-trialCycle+6, near)
	if d.streamed {
		t.Fatal("took a way that is a little faster before the trial has ended")
	}
	play(&d, 1, 1, near)
	if !d.streamed {
		t.Fatal("memory is faster, and is not taken")
	}
}

// One disturbed step or a small difference changes nothing.
func TestDeliveryIsNotEasilyMoved(t *testing.T) {
	var d delivery
	n := 0
	play(&d, 0, trialEvery, func(streamed bool, p transport.Phase) time.Duration {
		if n++; n%5 == 0 && !streamed {
			return time.Second
		}
		return 20
	})
	if d.streamed {
		t.Error("some slow steps among fast ones changed the way")
	}
	for _, streamed := range []bool{false, true} {
		d.streamed = streamed
		play(&d, 0, trialEvery, func(s bool, p transport.Phase) time.Duration {
			if s == streamed {
				return 1050
			}
			return 1000
		})
		if d.streamed != streamed {
			t.Errorf("5 %% moved it from streamed = %v", streamed)
		}
	}
}

// The numbers of chunks, which all members know, determine the trials. These must be the same on all members, whatever
// they have chosen.
func TestTrialsDoNotDependOnTheChoice(t *testing.T) {
	a, b := delivery{streamed: false}, delivery{streamed: true}
	tried := [2]int{}
	for i := range uint64(2 * trialEvery) {
		s, timed := a.trial(i)
		s2, timed2 := b.trial(i)
		if timed != timed2 || timed && s != s2 {
			t.Fatalf("chunk %d: %v, %v and %v, %v", i, s, timed, s2, timed2)
		}
		if timed && s {
			tried[1]++
		} else if timed {
			tried[0]++
		}
	}
	if tried[0] != tried[1] || tried[0] == 0 {
		t.Errorf("tried %d and %d times", tried[0], tried[1])
	}
}

func TestDeliveryClasses(t *testing.T) {
	for n, want := range map[int]int{1: 0, 512<<10 - 1: 0, 512 << 10: 1, 4<<20 - 1: 1, 4 << 20: 2, 32<<20 - 1: 2,
		32 << 20: 3, 1 << 40: 3} {
		if got := deliveryClass(n); got != want {
			t.Errorf("%d bytes: class %d, want %d", n, got, want)
		}
	}
}

// Whichever way each member delivers, the results are the same.
func TestResultsDoNotDependOnDelivery(t *testing.T) {
	rng := random(t)
	for size := 2; size <= 4; size++ {
		g := newGroup(t, size, inproc.Options{Shared: true, ChunkBytes: 16 << 10})
		o := inproc.Options{Shared: true}
		for way := range 2 {
			for r, l := range g.lanes {
				l.delivery.streamed = (r+way)%2 == 0
			}
			var jobs []job
			for range 3 {
				n := 20_000 + rng.IntN(20_000)
				jobs = append(jobs, allreduceJob(rng, sharedAlgorithms[2], size, tensor.Float32, tensor.Sum, n, false,
					rng.IntN(2) == 0))
			}
			jobs = append(jobs, mixture(rng, o, size, 10)...)
			g.runScheduled(t, rng, jobs)
		}
	}
}
