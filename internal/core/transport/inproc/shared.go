package inproc

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// staging is the memory of one lane's transport.Shared.
type staging struct {
	bells      []*bell // by member
	chunkBytes int
	depth      int
	buffers    []byte // [member][depth][chunkBytes], aligned to 64 bytes
	counters   []counters
}

// counters are one member's, each counter on a cache line of its own.
type counters [transport.NumPhases]struct {
	atomic.Uint64
	_ [56]byte
}

func newStaging(bells []*bell, chunkBytes, depth int) *staging {
	size := len(bells)
	unit := 64 * size
	chunkBytes = max(1, (chunkBytes+unit-1)/unit) * unit
	buffers := make([]byte, size*depth*chunkBytes+63)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(buffers)))) & 63
	return &staging{
		bells:      bells,
		chunkBytes: chunkBytes,
		depth:      depth,
		buffers:    buffers[skip:],
		counters:   make([]counters, size),
	}
}

// sharedMember is one member's transport.Shared.
type sharedMember struct {
	*staging
	rank int
}

var _ transport.Shared = (*sharedMember)(nil)

func (s *sharedMember) Rank() int       { return s.rank }
func (s *sharedMember) Size() int       { return len(s.bells) }
func (s *sharedMember) Depth() int      { return s.depth }
func (s *sharedMember) ChunkBytes() int { return s.chunkBytes }

func (s *sharedMember) Buffer(m int, chunk uint64) []byte {
	at := (m*s.depth + int(chunk%uint64(s.depth))) * s.chunkBytes
	return s.buffers[at : at+s.chunkBytes : at+s.chunkBytes]
}

func (s *sharedMember) Counter(m int, p transport.Phase) uint64 {
	return s.counters[m][p].Load()
}

func (s *sharedMember) Lead(p transport.Phase, v uint64) { s.Advance(p, v) }

func (s *sharedMember) Advance(p transport.Phase, v uint64) {
	s.counters[s.rank][p].Store(v)
	for m, b := range s.bells {
		if m != s.rank {
			b.Ring()
		}
	}
}
