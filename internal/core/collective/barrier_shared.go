package collective

import "github.com/gorovod/gorovod/internal/core/transport"

// barrierShared is the barrier in shared memory: each member lets one empty chunk pass In, and waits until all have.
//
// Steps: one synchronisation. Bytes: none. Always chosen over Shared.
type barrierShared struct {
	lane    *Lane
	chunk   uint64
	entered bool
}

func (b *barrierShared) start(l *Lane) Op {
	*b = barrierShared{lane: l, chunk: l.chunks(1)}
	return b
}

func (b *barrierShared) Advance() (bool, error) {
	l := b.lane
	if !b.entered { // no buffer is filled, so none needs to be free
		l.publish(transport.In, b.chunk+1)
		b.entered = true
	}
	if !l.allPast(transport.In, b.chunk+1) {
		return false, nil
	}
	l.publish(transport.Out, b.chunk+1)
	l.end()
	return true, nil
}
