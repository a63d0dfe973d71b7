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
	l, own, err := w.listen()
	if err != nil {
		return err
	}
	key := c.Key
	var addrs *ways
	if w.session == nil {
		key = []byte(rand.Text())       // only this rank sends to itself
		addrs = w.toward([][]byte{nil}) // nor is anything dialled for that
	} else if addrs, err = w.exchangeAddresses(ctx, "mail", own); err != nil {
		l.Close()
		return err
	}
	w.mail, err = p2p.New(p2p.Config{Rank: c.Rank, Size: c.Size, Key: key, Generation: generation, Listener: l, Timeout: c.Timeout,
		Addrs: addrs.addrs, Knocks: w.knocks, TLS: c.TLS, TrackFD: o.TrackFD, Err: w.net.Err})
	if err != nil {
		return fmt.Errorf("messages between ranks: %w", err)
	}
	return nil
}
