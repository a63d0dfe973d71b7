package tcp

import (
	"bytes"
	"io"
	"testing"
)

// A connection may bring any bytes. They cause an error, or are what put or encode would have written.
func FuzzParse(f *testing.F) {
	f.Add(hello{generation: 1, lane: 2, from: 3, to: 4, size: 5, cards: 6, incarnation: 7, stream: data}.encode())
	f.Add(rawMessage(messageBoard, 0, 3, "abc"))
	f.Add(abortMessage(3, "cause")[:headerSize])
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, err := parseHello(p); err == nil && !bytes.Equal(h.encode(), p) {
			t.Errorf("hello %x reads as %+v", p, h)
		}
		in := incoming{r: bytes.NewReader(p)}
		for {
			h, err := in.next()
			if err != nil {
				return
			}
			var q [headerSize]byte
			if h.put(q[:]); q != in.header {
				t.Errorf("header %x reads as %+v", in.header, h)
			}
			if _, err := io.CopyN(io.Discard, in.r, int64(min(h.length, 1<<40))); err != nil {
				return
			}
		}
	})
}
