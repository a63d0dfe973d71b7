//go:build linux

package shm

import (
	"bytes"
	"testing"
	"unsafe"
)

// The sockets through which ranks attach may bring any bytes. Ranks refuse them, or they are what the other side would
// have written.
func FuzzAttach(f *testing.F) {
	f.Add(hello{rank: 1, size: 2, pid: 3}.encode())
	f.Add((&failure{rank: 3, text: "no memory"}).message(statusFailed))
	f.Add((&failure{}).message(statusGaveUp))
	f.Add([]byte{statusGranted, statusAttached})
	f.Add([]byte{statusFailed, 0, 0, 0, 1, 0xff, 0xff, 'x'})
	c := Config{Rank: 0, Size: 3, Key: []byte("key"), Cards: 4}
	if err := c.check(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, err := decodeHello(p); err == nil {
			if !bytes.Equal(h.encode(), p) {
				t.Errorf("hello %x reads as %+v", p, h)
			}
			d := &door{n: &Network{cfg: c}, guests: make([]guestState, c.Size)}
			if d.register(h, h.pid) == nil && (h.rank < 1 || h.rank >= c.Size) {
				t.Errorf("%+v is let in", h)
			}
			d.tell(h.rank)
		}
		if len(p) == 0 {
			return
		}
		told, err := readFailure(bytes.NewReader(p[1:]))
		if err != nil {
			return
		}
		if len(told.text) > maxFailure || told.Error() == "" {
			t.Errorf("a failure of %d bytes", len(told.text))
		}
		again, err := readFailure(bytes.NewReader(told.message(p[0])[1:]))
		if err != nil || again.rank != told.rank || again.text != told.text {
			t.Errorf("%+v comes again as %+v, %v", told, again, err)
		}
	})
}

// FuzzHeader: whatever the header of a segment holds, it is the header of this job or check refuses it, and the record
// of an abort can be read.
func FuzzHeader(f *testing.F) {
	c := Config{Rank: 1, Size: 2, Key: []byte("key"), Cards: 4, Generation: 5}
	if err := c.check(); err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), uint64(0), "cause")
	f.Add(uint16(8), uint64(1), "cause")      // abortState, abortBy
	f.Add(uint16(9), ^uint64(0), "cause")     // abortLen
	f.Add(uint16(2), uint64(6), "generation") // of another world
	f.Fuzz(func(t *testing.T, word uint16, value uint64, text string) {
		mem := make([]byte, headBytes(c.Size)+64)
		h := &header{mem: aligned(mem)[:headBytes(c.Size)], size: c.Size}
		h.format(c)
		if err := h.check(c); err != nil {
			t.Fatal(err)
		}
		h.abort(1, text)
		at := int(word) % (int(pidsOffset()) / 8)
		bytesOf := h.mem[8*at:][:8]
		same := value == 0
		for i := range bytesOf {
			bytesOf[i] ^= byte(value >> (8 * i))
		}
		if err := h.check(c); (err == nil) != (same || at > 6) {
			t.Errorf("word %d changed by %#x: %v", at, value, err)
		}
		if h.aborted() {
			if cause := h.abortCause().Error(); len(cause) > maxAbortText+100 {
				t.Errorf("a cause of %d bytes", len(cause))
			}
		}
		h.abort(0, "another cause")
		for r := range c.Size {
			h.ring(r)
		}
	})
}

// aligned returns mem from its first multiple of 64 bytes on.
func aligned(mem []byte) []byte { return mem[-int(uintptr(unsafe.Pointer(&mem[0])))&63:] }
