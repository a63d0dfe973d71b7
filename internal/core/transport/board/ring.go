package board

import "unsafe"

// A ring holds messages of a header word and a payload, padded to 8 bytes.
// Positions in it grow for ever; its length is a multiple of 8, so that a header
// never wraps, while a payload may.

// recordHeader is the size of a message without payload.
const recordHeader = 8

// messageSize is the room that n bytes of payload take.
func messageSize(n int) int { return recordHeader + roundUp(n, 8) }

// word is the header at pos, a multiple of 8.
func word(ring []byte, pos uint64) *uint64 {
	off := pos % uint64(len(ring)) &^ 7
	return (*uint64)(unsafe.Pointer(&ring[off : off+8][0]))
}

// put copies p into the ring at pos.
func put(ring []byte, pos uint64, p []byte) {
	n := copy(ring[pos%uint64(len(ring)):], p)
	copy(ring, p[n:])
}

// get fills p from the ring at pos.
func get(ring []byte, pos uint64, p []byte) {
	n := copy(p, ring[pos%uint64(len(ring)):])
	copy(p[n:], ring)
}
