package world

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/transport/p2p"
)

// Send sends a message to another rank, apart from the lanes; see p2p.Mail.
func (w *World) Send(ctx context.Context, to int, tag uint32, label uint16, p []byte) error {
	defer w.heartbeat.attend().done()
	return w.whyEnded(ctx, w.mail.Send(ctx, to, tag, label, p))
}

// Recv receives a message from another rank; see p2p.Mail.
func (w *World) Recv(ctx context.Context, from int, tag uint32, p []byte) (n int, label uint16, err error) {
	defer w.heartbeat.attend().done()
	n, label, err = w.mail.Recv(ctx, from, tag, p)
	return n, label, w.whyEnded(ctx, err)
}

// RecvAny receives a message from whichever rank sends one; see p2p.Mail.
func (w *World) RecvAny(ctx context.Context, tag uint32, p []byte) (from, n int, label uint16, err error) {
	defer w.heartbeat.attend().done()
	from, n, label, err = w.mail.RecvAny(ctx, tag, p)
	return from, n, label, w.whyEnded(ctx, err)
}

// whyEnded adds to the error of a call that a rank has left, if that is why there are no messages any
// more: whoever has closed his mail may have done so for another's sake.
func (w *World) whyEnded(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, p2p.ErrTooLong) {
		return err
	}
	if left := w.Engine.Departure(); left != nil {
		return fmt.Errorf("%w: %w", err, left)
	}
	return err
}

// openMail prepares the messages between ranks.
func (w *World) openMail(ctx context.Context, generation uint64, o Options) error {
	c := w.Config
	key := c.Key
	switch {
	case w.mailDoor != nil: // opened together with the network's
	case w.session == nil:
		l, _, err := w.listen()
		if err != nil {
			return err
		}
		key = []byte(rand.Text())                              // only this rank sends to itself
		w.mailDoor = &door{l, w.toward([][]byte{nil}, 0, nil)} // nor is anything dialled for that
	default:
		doors, err := w.openDoors(ctx, "mail", 1)
		if err != nil {
			return err
		}
		w.mailDoor = &doors[0]
	}
	d := w.mailDoor
	w.mailDoor = nil
	var err error
	w.mail, err = p2p.New(p2p.Config{Rank: c.Rank, Size: c.Size, Key: key, Generation: generation, Listener: d.Listener, Timeout: c.Timeout,
		Addrs: d.addrs, Knocks: w.knocks, TLS: c.TLS, TrackFD: o.TrackFD, Err: w.net.Err})
	if err != nil {
		return fmt.Errorf("messages between ranks: %w", err)
	}
	return nil
}
