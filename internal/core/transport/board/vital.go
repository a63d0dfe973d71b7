package board

import "unsafe"

// vitalCards is how many cards Vital lists: the lowest ones are the first in use.
const vitalCards = 8

// Vital lists words of the region on which the board's work depends, 8 bytes each, by their meaning. Tests damage them.
func (b *Board) Vital() (registers, cards, mailboxes [][]byte) {
	r := b.regs
	at := func(p unsafe.Pointer) []byte { return unsafe.Slice((*byte)(p), 8) }
	registers = [][]byte{at(unsafe.Pointer(&r.lock)), at(unsafe.Pointer(&r.last)), at(unsafe.Pointer(&r.floor)),
		at(unsafe.Pointer(&r.tail)), at(unsafe.Pointer(&r.cut)), at(unsafe.Pointer(&r.closed))}
	for i := range b.cfg.Readers {
		registers = append(registers, at(unsafe.Pointer(b.cursor(i))))
	}
	for i := range uint32(min(b.cfg.Cards, vitalCards)) {
		s, marks := b.card(i)
		cards = append(cards, at(unsafe.Pointer(s)), at(unsafe.Pointer(&marks[0])))
	}
	for m := range b.cfg.posters() {
		mailboxes = append(mailboxes, at(unsafe.Pointer(&b.box(m).tail)), at(unsafe.Pointer(&b.box(m).head)))
	}
	return registers, cards, mailboxes
}
