package board

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/transport"
)

func addr(mem []byte) uintptr { return uintptr(unsafe.Pointer(&mem[0])) }

// FuzzCorruptRegion overwrites words of a board in use, and then calls all methods. Errors are welcome, panics and
// hangs are not.
func FuzzCorruptRegion(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, uint16(seed%40))
	}
	f.Fuzz(func(t *testing.T, seed uint64, words uint16) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := small(1+rng.IntN(70), 1+rng.IntN(5))
		c.Posters, c.Closers = rng.IntN(c.Members+1), rng.IntN(100)
		switch rng.IntN(3) {
		case 0:
			c.Learn = true
		case 1:
			c.Announce, c.LogBytes = true, 2*c.LogBytes
		}
		mem := make([]byte, Bytes(c)+64)
		mem = mem[-int(addr(mem))&63:][:Bytes(c)]
		b, err := Format(mem, c)
		if err != nil {
			t.Fatal(err)
		}
		use(b, rng)
		for range words {
			off := rng.IntN(len(mem) / 8)
			if rng.IntN(2) == 0 {
				off = rng.IntN(layoutOf(c).mailboxes / 8) // most words that the board relies on lie in front
			}
			if off < 6 {
				continue // Attach would refuse
			}
			word := rng.Uint64() >> rng.IntN(64) << rng.IntN(4)
			binary.LittleEndian.PutUint64(mem[8*off:], word)
		}
		stop := errors.New("stop")
		b.SetStop(func() error { return stop })
		use(b, rng)
		if b, err = Attach(mem, c); err == nil {
			b.SetStop(func() error { return stop })
			use(b, rng)
		}
	})
}

func use(b *Board, rng *rand.Rand) {
	for range 30 {
		m := rng.IntN(b.cfg.Members)
		b.Post(m, make([]byte, rng.IntN(100)))
		b.TakeRequests(func([]int, []byte) {})
		b.Acquire()
		s := uint32(rng.IntN(b.cfg.Cards))
		card, _ := b.card(s)
		b.Mark(m, s, card.gen)
		for m := range b.cfg.Members {
			if rng.IntN(2) == 0 {
				b.Mark(m, s, card.gen)
			}
		}
		b.Publish(make([]byte, rng.IntN(40)))
		b.Marked(s)
		if rng.IntN(4) == 0 {
			b.Retire(s)
		}
		if rng.IntN(4) == 0 {
			b.Forget(s, card.gen+uint32(rng.IntN(3)-1))
		}
		if rng.IntN(4) == 0 {
			b.Relay([]transport.Record{{Kind: transport.RecordCard, Card: s, Gen: card.gen},
				{Kind: transport.RecordRetired, Card: s}, {Kind: transport.RecordResponse,
					Payload: make([]byte, rng.IntN(40))}})
		}
		if rng.IntN(60) == 0 {
			b.End(rng.IntN(b.cfg.closers()))
		}
		for r := range b.cfg.Readers {
			b.Next(r)
			b.Drained(r)
		}
		b.ClosedBy()
	}
}
