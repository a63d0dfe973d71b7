package world

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport/p2p"
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

// RecvAny receives a message from any of the ranks among; see p2p.Endpoint.
func (w *World) RecvAny(ctx context.Context, among []int, tag uint32, p []byte) (from, n int, label uint16, err error) {
	defer w.monitor.Attend().Done()
	from, n, label, err = w.messages.RecvAny(ctx, among, tag, p)
	return from, n, label, w.whyEnded(ctx, err)
}

// leaving reports whether a rank has left: then others may have left, too.
func (w *World) leaving() bool {
	e := w.running.Load()
	if e == nil {
		return false
	}
	by, over := e.ClosedBy()
	return over || by >= 0
}

// newsTime is how long a rank whose connection with another one has ended waits for the news why. The news comes by
// another way, through the leaders of hosts or the launcher.
const newsTime = time.Second

// whyEnded adds the cause to the error of a call that has failed because another rank is gone: the rank that was the
// first to leave, or the failure of the world. The other end of the call may have closed its endpoint only because of
// that.
func (w *World) whyEnded(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, p2p.ErrTooLong) {
		return err
	}
	left, lost := (*p2p.Left)(nil), (*p2p.Lost)(nil)
	gone := errors.As(err, &left) || errors.As(err, &lost)
	if w.Engine.KeepsSets() {
		switch {
		case left != nil:
			return w.whyGone(left.Rank, true, err)
		case lost != nil:
			return w.whyGone(lost.Rank, false, err)
		}
	}
	if gone {
		await(func() bool { return w.leaving() || w.net.Err() != nil })
	}
	if left := w.Engine.Departure(); left != nil && !w.Engine.KeepsSets() {
		return fmt.Errorf("%w: %w", err, left)
	}
	if f := w.Engine.Failure(); f != nil {
		w.Engine.NoteVictim()
		if gone {
			return fmt.Errorf("%w: %w", err, f)
		}
		return err
	}
	if left != nil {
		return fmt.Errorf("%w: %w", err, &engine.Error{Code: engine.UnknownError,
			Reason: engine.LeftText(w.Describe(left.Rank) + " has shut down")})
	}
	return err
}

// whyGone is whyEnded for an engine that keeps process sets. The cause is rank, the other end of the call, if it has
// left in good order; farewell says that it has said goodbye. Other ranks that have left are no cause.
func (w *World) whyGone(rank int, farewell bool, err error) error {
	await(func() bool { return !w.Engine.Shares(rank) || w.net.Err() != nil })
	departed := farewell || !w.Engine.Shares(rank)
	words := ""
	if departed {
		words = w.monitor.Departed(rank) // it waits for the news of a death, too
	}
	if f := w.Engine.Failure(); f != nil {
		w.Engine.NoteVictim()
		return fmt.Errorf("%w: %w", err, f)
	}
	if departed {
		return fmt.Errorf("%w: %w", err, &engine.Error{Code: engine.UnknownError, Reason: words})
	}
	return err
}

// await waits for the news why a rank is gone, at most newsTime.
func await(news func() bool) {
	for began := time.Now(); !news() && time.Since(began) < newsTime; {
		time.Sleep(newsTime / 100)
	}
}
