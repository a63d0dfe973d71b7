package collective

import (
	"encoding/binary"
	"fmt"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"math"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// alltoallShared is the alltoall in shared memory. A member's chunks carry one stream: a header, then the data for the
// member after it, for the next one, and so on around. So at any time the members read from different members, and each
// chunk is full, whatever the sizes are.
//
// The header says where in the stream each member's data starts, and where the stream ends. The header is in the first
// chunk, so all members learn there how many chunks the longest stream needs. A member with a shorter stream takes part
// with empty chunks.
//
// Steps: one synchronisation a chunk, overlapped between chunks; the member that sends most decides the number of
// chunks. Bytes: each member copies the data that it sends into shared memory, and the data that it receives out of it.
// Always chosen over Shared.
type alltoallShared struct {
	lane      *Lane
	in, out   []byte
	base      uint64 // number of the first chunk
	length    int    // of this member's stream
	chunks    int    // of the longest stream known
	learned   bool   // chunks is final
	kin, kout int    // chunks that this member has finished with each step
	starts    []int  // size entries: the place of this member's data in each stream
}

// start reads the places of each member's data from l.offsets for the input, and from l.places for the output.
func (a *alltoallShared) start(l *Lane, in, out []byte) Op {
	*a = alltoallShared{lane: l, in: in, out: out, base: l.chunk, starts: a.starts}
	own := l.offsets[l.rank+1] - l.offsets[l.rank]
	a.length = a.header() + len(in) - own
	a.chunks = ceilDiv(a.length, l.shared.ChunkBytes())
	l.sent[feed.ByMemory] += uint64(len(in) - own)
	copy(out[l.places[l.rank]:][:own], in[l.offsets[l.rank]:])
	return a
}

// header is the header's length in bytes: a word for each member, and one for the end. It fits into any buffer.
func (a *alltoallShared) header() int { return 8 * (a.lane.size + 1) }

func (a *alltoallShared) Advance() (bool, error) {
	l := a.lane
	for !a.learned || a.kout < a.chunks {
		switch {
		case a.kout < a.kin && l.allPast(transport.In, a.base+uint64(a.kout)+1):
			if !a.learned {
				if err := a.learn(); err != nil {
					l.end()
					return true, err
				}
			}
			a.copyOut(a.kout)
			a.kout++
			l.publish(transport.Out, a.base+uint64(a.kout))
		case a.kin < a.chunks && l.free(a.base+uint64(a.kin)):
			a.copyIn(a.kin)
			a.kin++
			l.publish(transport.In, a.base+uint64(a.kin))
		default:
			return false, nil
		}
	}
	l.chunks(a.chunks)
	l.end()
	return true, nil
}

// copyIn fills chunk k with the stream's bytes from k×ChunkBytes on.
func (a *alltoallShared) copyIn(k int) {
	l := a.lane
	buffer := l.shared.Buffer(l.rank, a.base+uint64(k))
	if k == 0 {
		a.writeHeader(buffer)
	}
	after, before := a.in[l.offsets[l.rank+1]:], a.in[:l.offsets[l.rank]]
	at := a.header() - k*len(buffer) // the place in the buffer at which the stream's data starts
	copyInto(buffer, after, at, l.delivery.streamed)
	copyInto(buffer, before, at+len(after), l.delivery.streamed)
}

func (a *alltoallShared) writeHeader(p []byte) {
	l, at := a.lane, a.header()
	for i := range l.size {
		m := (l.rank + 1 + i) % l.size
		binary.NativeEndian.PutUint64(p[8*m:], uint64(at))
		if m != l.rank {
			at += l.offsets[m+1] - l.offsets[m]
		}
	}
	binary.NativeEndian.PutUint64(p[8*l.size:], uint64(at))
}

// learn reads the headers.
func (a *alltoallShared) learn() error {
	l := a.lane
	for m := range l.size {
		if m == l.rank {
			continue
		}
		p := l.shared.Buffer(m, a.base)
		start := binary.NativeEndian.Uint64(p[8*l.rank:])
		// In each stream its own member comes last, without data. So the next word is the end of this member's data.
		end := binary.NativeEndian.Uint64(p[8*((l.rank+1)%l.size):])
		length := binary.NativeEndian.Uint64(p[8*l.size:])
		if want := l.places[m+1] - l.places[m]; end-start != uint64(want) {
			return fmt.Errorf("alltoall: member %d sends %d bytes, member %d expects %d", m, end-start, l.rank, want)
		}
		if start < uint64(a.header()) || end < start || end > length || length > math.MaxInt64/2 {
			return fmt.Errorf("alltoall: member %d's bytes for member %d are said to be %d to %d of %d", m, l.rank,
				start, end, length)
		}
		a.starts[m] = int(start)
		a.chunks = max(a.chunks, ceilDiv(int(length), l.shared.ChunkBytes()))
	}
	a.learned = true
	return nil
}

// copyOut takes this member's data out of everybody's chunk k.
func (a *alltoallShared) copyOut(k int) {
	l := a.lane
	for i := 1; i < l.size; i++ {
		m := (l.rank + l.size - i) % l.size
		buffer := l.shared.Buffer(m, a.base+uint64(k))
		copyInto(a.out[l.places[m]:l.places[m+1]], buffer, k*len(buffer)-a.starts[m], false)
	}
}

// copyInto copies to dst those bytes of src that fall into dst if src[0] belongs at dst[at]. at may be negative, or
// beyond dst. If streamed, it writes past the caches.
func copyInto(dst, src []byte, at int, streamed bool) {
	if at < 0 {
		src = src[min(-at, len(src)):]
		at = 0
	}
	if at < len(dst) {
		deliver(streamed, dst[at:], src[:min(len(src), len(dst)-at)])
	}
}
