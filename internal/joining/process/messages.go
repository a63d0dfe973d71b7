package process

import (
	"context"

	"github.com/gorovod/gorovod/internal/core/engine"
)

// Send sends a message to another rank; see p2p.Endpoint.
func Send(ctx context.Context, to int, tag uint32, label uint16, p []byte) error {
	w := current.Load()
	if w == nil {
		return engine.ErrNotInitialized
	}
	return w.Send(ctx, to, tag, label, p)
}

// Recv receives a message from another rank; see p2p.Endpoint.
func Recv(ctx context.Context, from int, tag uint32, p []byte) (n int, label uint16, err error) {
	w := current.Load()
	if w == nil {
		return 0, 0, engine.ErrNotInitialized
	}
	return w.Recv(ctx, from, tag, p)
}

// RecvAny receives a message from any of the ranks among; see p2p.Endpoint.
func RecvAny(ctx context.Context, among []int, tag uint32, p []byte) (from, n int, label uint16, err error) {
	w := current.Load()
	if w == nil {
		return 0, 0, 0, engine.ErrNotInitialized
	}
	return w.RecvAny(ctx, among, tag, p)
}
