package collective

import (
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// broadcastShared is the broadcast in shared memory: the root copies chunk by
// chunk into its buffers, the others copy out of them.
//
// Steps: one synchronisation a chunk, overlapped between chunks. Bytes: the root
// copies n once, every other member n once. Always chosen over Shared.
type broadcastShared struct {
	lane   *Lane
	root   int
	buf    []byte
	base   uint64
	chunks int
	k      int // chunks that this member has copied
}

func (b *broadcastShared) start(l *Lane, root int, buf []byte) Op {
	chunks := ceilDiv(len(buf), l.shared.ChunkBytes())
	if l.rank == root {
		l.sent[feed.ByMemory] += uint64(len(buf))
	}
	*b = broadcastShared{lane: l, root: root, buf: buf, base: l.chunks(chunks), chunks: chunks}
	return b
}

func (b *broadcastShared) Advance() (bool, error) {
	l := b.lane
	for b.k < b.chunks {
		at := b.base + uint64(b.k)
		lo := b.k * l.shared.ChunkBytes()
		part := b.buf[lo:min(lo+l.shared.ChunkBytes(), len(b.buf))]
		if l.rank == b.root {
			if !l.free(at) {
				return false, nil
			}
			deliver(l.delivery.streamed, l.shared.Buffer(l.rank, at), part)
			l.lead(transport.In, at+1)
		} else {
			if l.shared.Counter(b.root, transport.In) < at+1 {
				return false, nil
			}
			copy(part, l.shared.Buffer(b.root, at))
		}
		b.k++
		l.publish(transport.Out, at+1)
	}
	l.end()
	return true, nil
}
