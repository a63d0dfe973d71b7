package board

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// withSlots is a board whose members have two slots of 64 bytes.
func withSlots(t *testing.T) *Board {
	t.Helper()
	c := Standard(3, 1, 4)
	c.Posters, c.Slots, c.SlotBytes = 2, 2, 64
	b, err := NewPrivate(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func operand(data ...byte) *transport.Operand {
	return &transport.Operand{DType: tensor.Uint8, Reduce: tensor.Sum, Scale: 0.5, Data: data}
}

// A member puts operands into its own slots until none is free, and others read them by their mark.
func TestSlots(t *testing.T) {
	b := withSlots(t)
	for m := range 2 {
		for card := range uint32(3) {
			mark := transport.Mark{Card: card, Gen: 7}
			if put := b.Put(m, mark, operand(byte(m), byte(card), 3)); put != (card < 2) {
				t.Errorf("member %d, card %d: put %v", m, card, put)
			}
			o, ok, err := b.Operand(m, mark)
			if err != nil || ok != (card < 2) {
				t.Fatalf("member %d, card %d: found %v, %v", m, card, ok, err)
			}
			if ok && (!bytes.Equal(o.Data, []byte{byte(m), byte(card), 3}) || o.DType != tensor.Uint8 ||
				o.Scale != 0.5 || o.Reduce != tensor.Sum) {
				t.Errorf("member %d, card %d: %+v", m, card, o)
			}
			mark.Gen++
			if _, ok, err := b.Operand(m, mark); ok || err != nil {
				t.Errorf("member %d, card %d: found at another generation, %v", m, card, err)
			}
		}
	}
	if b.Drop(0, 1, 6) || b.Drop(0, 2, 0) {
		t.Error("dropped what is not there")
	}
	if !b.Drop(0, 1, 7) || !b.Drop(0, 0, 0) || b.Drop(0, 0, 0) {
		t.Error("not dropped")
	}
	if _, ok, _ := b.Operand(1, transport.Mark{Card: 1, Gen: 7}); !ok {
		t.Error("another member's operand is gone")
	}
	mark := transport.Mark{Card: 3, Gen: 1}
	if b.Put(0, mark, operand()) || b.Put(0, mark, operand(make([]byte, 65)...)) || b.Put(2, mark, operand(1)) {
		t.Error("put nothing, too much, or without a slot")
	}
	if !b.Put(0, mark, operand(make([]byte, 64)...)) {
		t.Error("refused although slots are free")
	}
}

// A slot that another process has damaged is an error, whatever the damage: never a panic.
func TestDamagedSlots(t *testing.T) {
	mark := transport.Mark{Card: 2, Gen: 1}
	for what, damage := range map[string]func(s *slot){
		"no length":    func(s *slot) { s.length = 0 },
		"a great one":  func(s *slot) { s.length = 1 << 31 },
		"beyond":       func(s *slot) { s.length = 65 },
		"half element": func(s *slot) { s.dtype, s.length = uint16(tensor.Float32), 3 },
		"type":         func(s *slot) { s.dtype = 99 },
		"operation":    func(s *slot) { s.reduce = 99 },
		"scale":        func(s *slot) { s.dtype = uint16(tensor.Bool) },
	} {
		b := withSlots(t)
		b.Put(1, mark, operand(1, 2, 3))
		s, _ := b.slot(1, 0)
		damage(s)
		if _, ok, err := b.Operand(1, mark); ok || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: found %v, %v", what, ok, err)
		}
	}
}

// Processes that disagree about the slots do not share a board.
func TestSlotsAreAgreed(t *testing.T) {
	c := Standard(2, 2, 4)
	c.Slots, c.SlotBytes = 2, 64
	other := c
	other.Slots, other.SlotBytes = 1, 128
	b, err := NewPrivate(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Check(0); err != nil {
		t.Error(err)
	}
	b.regs.slots = other.slots()
	if err := b.Check(0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another shape passes: %v", err)
	}
	for _, bad := range []Config{{Slots: -1}, {Slots: 1, SlotBytes: 63}, {Slots: 1 << 20, SlotBytes: 64},
		{Slots: 1, SlotBytes: 1 << 30}} {
		c := Standard(2, 2, 4)
		c.Slots, c.SlotBytes = bad.Slots, bad.SlotBytes
		if _, err := NewPrivate(c); err == nil {
			t.Errorf("%d slots of %d bytes are possible", c.Slots, c.SlotBytes)
		}
	}
}

// A relayed result reaches all readers with its card, and takes the room of a Response of its size.
func TestRelayedResults(t *testing.T) {
	b, err := NewPrivate(Config{Members: 2, Readers: 2, Posters: 1, Cards: 4, LogBytes: MinLog(4) + 64,
		MailboxBytes: MinMailbox})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		payload := bytes.Repeat([]byte{byte(round)}, 1+round)
		room, err := b.Relay([]transport.Record{{Kind: transport.RecordResult, Card: 3, Last: 1, Payload: payload}})
		if err != nil || !room {
			t.Fatalf("round %d: %v, %v", round, room, err)
		}
		for reader := range 2 {
			r, err := b.Next(reader)
			if err != nil || len(r) != 1 || r[0].Kind != transport.RecordResult || r[0].Card != 3 ||
				!bytes.Equal(r[0].Payload, payload) || b.Last(3) != 1 {
				t.Fatalf("round %d: %v, %v", round, r, err)
			}
		}
	}
	b.append(resultRecord(4, 8), make([]byte, 8))
	if _, err := b.Next(0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a result of a card that does not exist: %v", err)
	}
}
