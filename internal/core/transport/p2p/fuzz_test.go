package p2p

import (
	"bytes"
	"testing"
)

// A connection may bring any bytes. A hello comes from a rank that may call, and a header is one that putHeader has
// written, or both are refused.
func FuzzParse(f *testing.F) {
	m := &Endpoint{cfg: Config{Rank: 1, Size: 3, Generation: 7}}
	from := &Endpoint{cfg: Config{Rank: 2, Size: 3, Generation: 7}}
	f.Add(from.hello(1))
	f.Add(from.hello(0))
	var head [headerSize]byte
	putHeader(head[:], kindMessage, 5, 77, 1<<20)
	f.Add(head[:])
	putHeader(head[:], kindGoodbye, 0, 0, 0)
	f.Add(bytes.Clone(head[:]))
	putHeader(head[:], kindMessage, 1<<31, 0, maxMessage+1)
	f.Add(bytes.Clone(head[:]))
	f.Fuzz(func(t *testing.T, p []byte) {
		if rank, err := m.sender(p); err == nil {
			if rank < 0 || rank >= m.cfg.Size || rank == m.cfg.Rank {
				t.Errorf("%x is from rank %d", p, rank)
			}
			if h := (&Endpoint{cfg: Config{Rank: rank, Size: 3, Generation: 7}}).hello(1); !bytes.Equal(h, p) {
				t.Errorf("hello %x reads as that of rank %d", p, rank)
			}
		}
		if len(p) < headerSize {
			return
		}
		h, err := parseHeader(p)
		if err != nil {
			return
		}
		var q [headerSize]byte
		putHeader(q[:], kindMessage, h.tag, h.label, h.length)
		if h.length < 0 || h.length > maxMessage || !bytes.Equal(q[:], p[:headerSize]) {
			t.Errorf("header %x reads as %+v", p[:headerSize], h)
		}
	})
}
