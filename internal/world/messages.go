package world

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/transport/p2p"
)

// Send sends a message to another rank, independently of the lanes; see p2p.Endpoint.
func (w *World) Send(ctx context.Context, to int, tag uint32, label uint16, p []byte) error {
	defer w.monitor.Attend().Done()
	return w.whyEnded(ctx, w.messages.Send(ctx, to, tag, label, p))
}

// Recv receives a message from another rank; see p2p.Endpoint.
func (w *World) Recv(ctx context.Context, from int, tag uint32, p []byte) (n int, label uint16, err error) {
	defer w.monitor.Attend().Done()
	n, label, err = w.messages.Recv(ctx, from, tag, p)
	return n, label, w.whyEnded(ctx, err)
}

// RecvAny receives a message from any rank; see p2p.Endpoint.
func (w *World) RecvAny(ctx context.Context, tag uint32, p []byte) (from, n int, label uint16, err error) {
	defer w.monitor.Attend().Done()
	from, n, label, err = w.messages.RecvAny(ctx, tag, p)
	return from, n, label, w.whyEnded(ctx, err)
}

// whyEnded adds the rank that has left to the error of a call, if that has ended all messages. The other end of the
// call may have closed its endpoint only because of that rank.
func (w *World) whyEnded(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, p2p.ErrTooLong) {
		return err
	}
	if left := w.Engine.Departure(); left != nil {
		return fmt.Errorf("%w: %w", err, left)
	}
	if w.Engine.Failure() != nil {
		w.Engine.NoteVictim()
	}
	return err
}
