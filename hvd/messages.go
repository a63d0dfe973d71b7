package hvd

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/gorovod/gorovod/internal/joining/process"
	"github.com/gorovod/gorovod/internal/joining/world"
)

// Send sends data to the process with rank to, which may be this one. Messages are independent of the collectives. Send
// returns as soon as the caller may reuse data. The receiver may not have the message yet. Send blocks while too many
// bytes of this process wait for a Recv there. Messages with the same tag arrive in order.
//
// The errors are ErrNotInitialized, ErrInvalidArgument for a rank outside the job,
// ErrInternal if the receiver has died or shut down, or the job has failed, and ctx's.
func Send[T Element](ctx context.Context, to int, tag uint32, data []T) error {
	w, err := peer(to)
	if err != nil {
		return err
	}
	return wrapMessage(ctx, w.Send(ctx, to, tag, 0, view(data)))
}

// Recv receives the next message with this tag from the process with rank from
// into data, and returns its length in elements. It blocks until such a message
// comes or ctx is done, or until the sender has shut down. The elements should have the sender's type.
//
// The errors are those of Send, and two more. ErrMessageTooLong: the message is
// longer than data; another Recv can have it. ErrInvalidArgument: the message does
// not consist of whole elements; it is lost.
func Recv[T Element](ctx context.Context, from int, tag uint32, data []T) (int, error) {
	w, err := peer(from)
	if err != nil {
		return 0, err
	}
	n, _, err := w.Recv(ctx, from, tag, view(data))
	if err != nil {
		return 0, wrapMessage(ctx, err)
	}
	var zero T
	size := int(unsafe.Sizeof(zero))
	if n%size != 0 {
		return 0, fmt.Errorf("receive with tag %d from rank %d: a message of %d bytes is not one of %T: %w", tag, from,
			n, zero, ErrInvalidArgument)
	}
	return n / size, nil
}

// peer checks that there is a process of this rank.
func peer(rank int) (*world.World, error) {
	w := process.World()
	switch {
	case w == nil:
		return nil, ErrNotInitialized
	case rank < 0 || rank >= w.Place.Size:
		return nil, fmt.Errorf("rank %d is not one of the %d ranks: %w", rank, w.Place.Size, ErrInvalidArgument)
	}
	return w, nil
}
