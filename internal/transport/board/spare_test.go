package board

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Where every record has been read, Acquire takes a free slot if there is one, and else the
// one that has been unused for longest, whatever was acquired, used and retired before.
func TestAcquireKeepsTheOrderOfUse(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const slots = 7
	b := mustNew(t, Standard(1, 1, slots))
	gens := map[uint32]uint32{} // of those taken
	var order []uint32          // the same, the one unused for longest first
	used := func(slot uint32) {
		order = append(slices.DeleteFunc(order, func(s uint32) bool { return s == slot }), slot)
	}
	for range 5000 {
		switch n := rng.IntN(10); {
		case n < 5 || len(order) == 0:
			slot, gen := mustAcquire(t, b)
			switch _, taken := gens[slot]; {
			case len(order) < slots && taken:
				t.Fatalf("acquired slot %d, which is taken, of %d free ones", slot, slots-len(order))
			case len(order) == slots && slot != order[0]:
				t.Fatalf("acquired slot %d of %v", slot, order)
			}
			gens[slot] = gen
			used(slot)
		case n < 9:
			slot := order[rng.IntN(len(order))]
			mustMark(t, b, 0, slot, gens[slot], Completed)
			mustNext(t, b, 0, 1)
			used(slot)
		default:
			slot := order[rng.IntN(len(order))]
			if _, ok, err := b.Retire(slot); !ok || err != nil {
				t.Fatalf("Retire: %v, %v", ok, err)
			}
			delete(gens, slot)
			order = slices.DeleteFunc(order, func(s uint32) bool { return s == slot })
		}
		if len(b.spares) > 2*slots {
			t.Fatalf("%d spares", len(b.spares))
		}
	}
}

// BenchmarkAcquire is of a job that has more names than there are slots.
func BenchmarkAcquire(bm *testing.B) {
	b := mustNew(bm, Standard(1, 1, 1024))
	bm.ReportAllocs()
	for range bm.N {
		mustAcquire(bm, b)
	}
}
