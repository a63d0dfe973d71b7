package shm

import (
	"unsafe"

	"github.com/gorovod/gorovod/internal/transport"
)

// staging is the data path of a lane: buffers and counters in its region.
type staging struct {
	head     *header
	me       int
	others   []int     // places of the other members
	counters []counter // NumPhases per member
	buffers  []byte
	chunk    int
	members  int
}

func newStaging(h *header, region []byte, l laneLayout, me int, places []int) *staging {
	s := &staging{
		head:     h,
		me:       me,
		counters: unsafe.Slice((*counter)(unsafe.Pointer(&region[l.counters])), len(places)*int(transport.NumPhases)),
		buffers:  region[l.buffers:],
		chunk:    chunkBytes(len(places)),
		members:  len(places),
	}
	for m, p := range places {
		if m != me {
			s.others = append(s.others, p)
		}
	}
	return s
}

func (s *staging) Rank() int       { return s.me }
func (s *staging) Size() int       { return s.members }
func (s *staging) Depth() int      { return depth }
func (s *staging) ChunkBytes() int { return s.chunk }

func (s *staging) Buffer(m int, chunk uint64) []byte {
	off := (m*depth + int(chunk%depth)) * s.chunk
	return s.buffers[off : off+s.chunk : off+s.chunk]
}

func (s *staging) Reached(m int, p transport.Phase) uint64 {
	return s.counters[m*int(transport.NumPhases)+int(p)].v.Load()
}

// Advance stores before it looks who sleeps, see bell.
func (s *staging) Advance(p transport.Phase, v uint64) {
	s.counters[s.me*int(transport.NumPhases)+int(p)].v.Store(v)
	for _, p := range s.others {
		s.head.ring(p)
	}
}

var _ transport.Shared = (*staging)(nil)
