package board

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// If every record has been read, Acquire takes a free card if there is one, and otherwise the card that has been unused
// for longest, whatever was acquired, used and retired before.
func TestAcquireKeepsTheOrderOfUse(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const cards = 7
	b := mustNew(t, Standard(1, 1, cards))
	gens := map[uint32]uint32{} // of those taken
	var order []uint32          // the same cards, the one unused for longest first
	used := func(card uint32) {
		order = append(slices.DeleteFunc(order, func(s uint32) bool { return s == card }), card)
	}
	for range 5000 {
		switch n := rng.IntN(10); {
		case n < 5 || len(order) == 0:
			card, gen := mustAcquire(t, b)
			switch _, taken := gens[card]; {
			case len(order) < cards && taken:
				t.Fatalf("acquired card %d, which is taken, of %d free ones", card, cards-len(order))
			case len(order) == cards && card != order[0]:
				t.Fatalf("acquired card %d of %v", card, order)
			}
			gens[card] = gen
			used(card)
		case n < 9:
			card := order[rng.IntN(len(order))]
			mustMark(t, b, 0, card, gens[card], Completed)
			mustNext(t, b, 0, 1)
			used(card)
		default:
			card := order[rng.IntN(len(order))]
			if _, ok, err := b.Retire(card); !ok || err != nil {
				t.Fatalf("Retire: %v, %v", ok, err)
			}
			delete(gens, card)
			order = slices.DeleteFunc(order, func(s uint32) bool { return s == card })
		}
		if len(b.spares) > 2*cards {
			t.Fatalf("%d spares", len(b.spares))
		}
	}
}

// BenchmarkAcquire is about a job with more names than cards.
func BenchmarkAcquire(bm *testing.B) {
	b := mustNew(bm, Standard(1, 1, 1024))
	bm.ReportAllocs()
	for range bm.N {
		mustAcquire(bm, b)
	}
}
