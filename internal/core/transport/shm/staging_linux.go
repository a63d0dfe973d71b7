package shm

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// staging is the data path of a lane: buffers and counters in its region.
type staging struct {
	net      *Network
	head     *header
	abort    func(error)
	places   []int // of the members
	me       int
	others   []int     // places of the other members
	counters []counter // NumPhases per member
	buffers  []byte
	chunk    int
	members  int
	copying  bool // see CanCopy
	crowded  bool
	probes   [maxProbes]transport.Span
	probed   [maxProbes]byte
	huge     hugePages

	// What this member has published. Only the driver uses it.
	published [transport.NumPhases]uint64
}

func newStaging(n *Network, region []byte, l laneLayout, me int, places []int) *staging {
	s := &staging{
		net:      n,
		head:     n.head,
		abort:    n.Abort,
		places:   places,
		me:       me,
		counters: unsafe.Slice((*counter)(unsafe.Pointer(&region[l.counters])), len(places)*int(transport.NumPhases)),
		buffers:  region[l.buffers:],
		chunk:    chunkBytes(len(places)),
		members:  len(places),
		copying:  n.worthCopying(),
		crowded:  n.head.crowded(),
		huge:     newHugePages(n.hugeSize, n.head.crowded()),
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

// maxAhead is more than the distance between any two members: no member fills a buffer again, Depth chunks later,
// before all have passed Out.
const maxAhead = 1 << 20

// Counter aborts the network if it finds a value that no member can have written. A rank that believed such a value
// would read data that is not there yet.
func (s *staging) Counter(m int, p transport.Phase) uint64 {
	v := s.counters[m*int(transport.NumPhases)+int(p)].v.Load()
	if v > s.published[transport.Out]+maxAhead {
		s.abort(fmt.Errorf("the shared segment is corrupt: member %d is said to have reached %d in phase %d, member "+
			"%d is at %d", m, v, p, s.me, s.published[transport.Out]))
		return 0
	}
	return v
}

// Advance stores its counter, then looks for members that sleep (see bell), and then at the other counters. If two
// members are the last at the same time, at least one of them sees the other's counter.
func (s *staging) Advance(p transport.Phase, v uint64) {
	before := s.store(p, v)
	for _, place := range s.others {
		if !s.head.sleeps(place) {
			continue
		}
		if s.lowest(p) <= before {
			return // another member has the lowest counter, as before
		}
		break
	}
	s.ringOthers()
}

// Lead is Advance that always rings.
func (s *staging) Lead(p transport.Phase, v uint64) {
	s.store(p, v)
	s.ringOthers()
}

// store publishes a counter, and returns its former value.
func (s *staging) store(p transport.Phase, v uint64) (before uint64) {
	before = s.published[p]
	s.published[p] = v
	s.counters[s.me*int(transport.NumPhases)+int(p)].v.Store(v)
	return before
}

// lowest is the lowest of the other members' counters.
func (s *staging) lowest(p transport.Phase) uint64 {
	low := uint64(math.MaxUint64)
	for m := range s.members {
		if m != s.me {
			low = min(low, s.counters[m*int(transport.NumPhases)+int(p)].v.Load())
		}
	}
	return low
}

func (s *staging) ringOthers() {
	for _, p := range s.others {
		s.head.ring(p)
	}
}

// verify returns an error if a counter of this member is not the published value.
func (s *staging) verify() error {
	for p := range transport.NumPhases {
		if v := s.counters[s.me*int(transport.NumPhases)+int(p)].v.Load(); v != s.published[p] {
			return fmt.Errorf("the shared segment is corrupt: member %d is said to have reached %d in phase %d, and "+
				"has reached %d", s.me, v, p, s.published[p])
		}
	}
	return nil
}

// words are the counters as bytes.
func (s *staging) words() (words [][]byte) {
	for i := range s.counters {
		words = append(words, unsafe.Slice((*byte)(unsafe.Pointer(&s.counters[i].v)), 8))
	}
	return words
}

var _ transport.Shared = (*staging)(nil)
