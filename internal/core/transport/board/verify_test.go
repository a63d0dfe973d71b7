package board

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// eachItsOwn makes a board whose members have Board values of their own, as processes do.
func eachItsOwn(t *testing.T, c Config) []*Board {
	mem := make([]byte, Bytes(c)+64)
	mem = mem[-int(addr(mem))&63:][:Bytes(c)]
	boards := make([]*Board, c.Members)
	for m := range boards {
		var err error
		if m == 0 {
			boards[m], err = Format(mem, c)
		} else {
			boards[m], err = Attach(mem, c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return boards
}

// If a damaged word makes a member wait for ever, the Verify of some member finds the damage. In a word that one member
// alone writes it finds any damage; in other words it finds values that the protocol rules out.
func TestVerifyFindsWhatLooksLikeASlowMember(t *testing.T) {
	const members = 3
	for name, damage := range map[string]func(b *Board, card uint32){
		"cursor":         func(b *Board, _ uint32) { b.cursor(1).Add(8) },
		"mailbox's end":  func(b *Board, _ uint32) { b.box(1).tail.Add(^uint64(7)) },
		"mailbox's head": func(b *Board, _ uint32) { b.box(2).head.Add(8) },
		"mark":           func(b *Board, card uint32) { _, marks := b.card(card); marks[0] &^= 2 },
		"mark of nobody": func(b *Board, card uint32) { _, marks := b.card(card); marks[0] &^= 2; marks[0] |= 64 },
		"generation":     func(b *Board, card uint32) { s, _ := b.card(card); s.gen += 3 },
		"taken":          func(b *Board, card uint32) { s, _ := b.card(card); s.taken = 0 },
		"floor":          func(b *Board, _ uint32) { b.regs.floor += 64 },
		"cut":            func(b *Board, _ uint32) { b.regs.cut.Store(b.regs.tail.Load() + 8) },
		"closed":         func(b *Board, _ uint32) { b.regs.closed.Store(77) },
		"closed by 1":    func(b *Board, _ uint32) { b.regs.closed.Store(2) },
		"lock":           func(b *Board, _ uint32) { b.regs.lock.Store(1 << 20) },
		"shape":          func(b *Board, _ uint32) { b.regs.cards++ },
	} {
		boards := eachItsOwn(t, small(members, 4))
		card, gen := mustAcquire(t, boards[0])
		for m, b := range boards {
			mustMark(t, b, m, card, gen, map[bool]Result{true: Completed}[m == members-1])
			if _, err := b.Post(m, []byte("please")); err != nil {
				t.Fatal(err)
			}
		}
		for m, b := range boards {
			mustNext(t, b, m, 1)
		}
		if err := boards[0].TakeRequests(func([]int, []byte) {}); err != nil {
			t.Fatal(err)
		}
		mustMark(t, boards[1], 1, card, gen, Marked)
		for m, b := range boards {
			if err := b.Verify(m); err != nil {
				t.Fatalf("member %d finds fault with a sound board: %v", m, err)
			}
		}
		damage(boards[0], card)
		found := 0
		for m, b := range boards {
			if err := b.Verify(m); errors.Is(err, ErrCorrupt) {
				found++
			} else if err != nil {
				t.Errorf("%s: member %d: %v", name, m, err)
			}
		}
		if found == 0 {
			t.Errorf("%s: nobody finds it", name)
		}
	}
}

// Verify takes nothing that the protocol allows for damage.
func TestVerifyBelievesTheProtocol(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	c := small(3, 3)
	boards := eachItsOwn(t, c)
	waiting := make([]map[uint32]bool, c.Members)
	for m := range waiting {
		waiting[m] = map[uint32]bool{}
	}
	gens := map[uint32]uint32{}
	for range 3000 {
		m := rng.IntN(c.Members)
		b := boards[m]
		switch rng.IntN(6) {
		case 0:
			if card, gen, ok, err := boards[0].Acquire(); err != nil {
				t.Fatal(err)
			} else if ok {
				gens[card] = gen
			}
		case 1, 2:
			card := uint32(rng.IntN(c.Cards))
			if gens[card] == 0 || waiting[m][card] {
				continue
			}
			r, err := b.Mark(m, card, gens[card])
			if err != nil {
				t.Fatal(err)
			}
			waiting[m][card] = r != Stale
		case 3:
			records, err := b.Next(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				waiting[m][r.Card] = false
			}
		case 4:
			if card := uint32(rng.IntN(c.Cards)); rng.IntN(4) == 0 && gens[card] != 0 {
				marked, ok, err := boards[0].Retire(card)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					gens[card] = 0
				}
				for _, m := range marked {
					waiting[m][card] = false
				}
			}
		case 5:
			if _, err := b.Post(m, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := boards[0].TakeRequests(func([]int, []byte) {}); err != nil {
				t.Fatal(err)
			}
		}
		for m, b := range boards {
			if err := b.Verify(m); err != nil {
				t.Fatalf("member %d: %v", m, err)
			}
		}
	}
}

// A lock that no member will ever release ends the wait for it.
func TestALockThatNobodyHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := mustNew(t, small(2, 1))
	b.regs.lock.Store(2)
	if _, err := b.Mark(0, 0, 1); err == nil || !strings.Contains(err.Error(),
		"member 1 has held the lock for seconds") {
		t.Error(err)
	}
}
