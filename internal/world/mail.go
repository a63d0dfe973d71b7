package world

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/gorovod/gorovod/internal/transport/p2p"
)

// Send sends a message to another rank, apart from the lanes; see p2p.Mail.
func (w *World) Send(ctx context.Context, to int, tag uint32, label uint16, p []byte) error {
	defer w.heartbeat.attend().done()
	return w.mail.Send(ctx, to, tag, label, p)
}

// Recv receives a message from another rank; see p2p.Mail.
func (w *World) Recv(ctx context.Context, from int, tag uint32, p []byte) (n int, label uint16, err error) {
	defer w.heartbeat.attend().done()
	return w.mail.Recv(ctx, from, tag, p)
}

// RecvAny receives a message from whichever rank sends one; see p2p.Mail.
func (w *World) RecvAny(ctx context.Context, tag uint32, p []byte) (from, n int, label uint16, err error) {
	defer w.heartbeat.attend().done()
	return w.mail.RecvAny(ctx, tag, p)
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
