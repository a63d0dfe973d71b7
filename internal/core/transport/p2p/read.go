package p2p

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// run reads the sender's connection to its end.
func (b *box) run(c *link.Conn) {
	in := reader{b: b, c: c, r: bufio.NewReaderSize(c.Stream, 4<<10)}
	var head [headerSize]byte
	for {
		_, err := in.full(head[:], nil)
		if err == nil {
			var h header
			if h, err = parseHeader(head[:]); err == nil {
				err = in.message(h)
			}
		}
		if err != nil {
			if b.m.err() == nil {
				b.fail(lost(b.from, c, err))
				b.m.drop(c)
			}
			return
		}
	}
}

// reader is the reading end of a box.
type reader struct {
	b *box
	c *link.Conn
	r *bufio.Reader
}

// message reads a payload into a waiter's buffer or into memory.
func (in *reader) message(h header) error {
	b := in.b
	w, err := b.place(b.m.ctx, h)
	if err != nil {
		return err
	}
	if w == nil {
		b.mu.Unlock()
		return in.keep(h, make([]byte, h.length), 0)
	}
	w.stage = filling
	b.mu.Unlock()
	n, err := in.full(w.p[:h.length], w)
	if err != errCancelled {
		result := err
		if err != nil {
			result = lost(b.from, in.c, err)
		}
		b.mu.Lock()
		w.finish(h, result)
		b.mu.Unlock()
		return err
	}
	// Keep the message, though there may be no room for it.
	rest := make([]byte, h.length)
	copy(rest, w.p[:n])
	b.mu.Lock()
	b.bytes += cost(h.length)
	w.finish(header{}, err)
	b.mu.Unlock()
	return in.keep(h, rest, n)
}

// keep reads the rest of a message into p[n:] and stores it.
func (in *reader) keep(h header, p []byte, n int) error {
	if _, err := in.full(p[n:], nil); err != nil {
		return err
	}
	in.b.store(h, p)
	return nil
}

// full fills p. If p is the buffer of w, and w is cancelled meanwhile, full returns the number of bytes that it has
// read, and errCancelled.
func (in *reader) full(p []byte, w *waiter) (n int, err error) {
	for {
		k, err := io.ReadFull(in.r, p[n:])
		n += k
		if err == nil || n == len(p) {
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		// Either end has interrupted this, or giveUp has, perhaps for an earlier buffer that was full before the
		// interruption.
		in.b.mu.Lock()
		err = in.b.m.resume(in.c.SetReadDeadline)
		if err == nil && w != nil && w.stage == interrupted {
			err = errCancelled
		}
		in.b.mu.Unlock()
		if err != nil {
			return n, err
		}
	}
}
