package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// contribution is what one member gives to a gather.
type contribution[T any] struct {
	Member int
	Says   T
}

// gather returns what each member of a lane says, as JSON carries it, once all members have called it with the name. It
// is an error on all members if one of them has joined.
func gather[T any](l *lane, name string, own T) ([]T, *Error) {
	name = name[:min(len(name), negotiate.MaxName)]
	p, err := json.Marshal(contribution[T]{l.rank, own})
	if err != nil {
		return nil, errorf(InvalidArgument, "%s: %v.", name, err)
	}
	var all []byte
	op := Op{Type: operation.Allgather, DType: tensor.Uint8, Name: name, Set: l.id, Shape: tensor.Shape{int64(len(p))},
		Prescale: 1, Postscale: 1, In: p, WillWait: true,
		Alloc: func(_ tensor.Shape, n int) ([]byte, error) {
			all = make([]byte, n)
			return all, nil
		}}
	en, failed := l.engine.Enqueue(&op)
	if failed != nil {
		return nil, failed
	}
	defer en.Release()
	en.Wait(-1)
	if failed := en.Err(); failed != nil {
		return nil, failed
	}
	said := make([]T, len(l.members))
	from := json.NewDecoder(bytes.NewReader(all))
	for m := range said {
		var next contribution[T]
		switch err := from.Decode(&next); {
		case err == io.EOF || err == nil && next.Member > m && next.Member < len(l.members):
			return nil, errorf(PreconditionError, "%s: %s has joined, and has nothing to say.", name,
				l.engine.opts.Describe(l.members[m]))
		case err == nil && next.Member != m:
			err = fmt.Errorf("it is that of member %d", next.Member)
			fallthrough
		case err != nil:
			err = fmt.Errorf("protocol error: %s: the word of %s: %w", name, l.engine.opts.Describe(l.members[m]), err)
			l.engine.net.Abort(err)
			return nil, l.words(l.engine.aborted(l.engine.net.Err()), name)
		}
		said[m] = next.Says
	}
	return said, nil
}
