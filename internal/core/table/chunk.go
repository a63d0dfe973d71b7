package table

import (
	"fmt"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// chunk is memory for segments of one size, outside of Go's heap: as huge pages, where a random read costs less. The
// segments of a table grow at about the same time, because hashes are even. So they leave the chunks of one size for
// those of the next one, and the memory that they have left is freed whole.
type chunk struct {
	memory []byte
	taken  int // segments that have got a place in it
	left   int // segments that have left theirs
}

// chunkBytes is the size of a chunk with segments of n entries: all segments of a table, or slabTarget.
func chunkBytes(n int) int {
	return max(n*entryBytes, min(slots.Count*n*entryBytes, slabTarget))
}

// place gives s room for n entries, all 0. Its n stays.
func (x *index) place(s *segment, n int) error {
	at, ok := x.open[n]
	if !ok {
		memory, err := newSlab(chunkBytes(n), chunkBytes(n) >= slabTarget)
		if err != nil {
			return fmt.Errorf("no memory to find more than the %d entries of the index: %w", x.entries, err)
		}
		at = x.vacant()
		x.chunks[at] = chunk{memory: memory}
		if x.open == nil {
			x.open = map[int]uint32{}
		}
		x.open[n] = at
	}
	c := &x.chunks[at]
	s.entries = unsafe.Slice((*entry)(unsafe.Pointer(&c.memory[c.taken*n*entryBytes])), n)
	s.chunk = at
	c.taken++
	if c.taken == len(c.memory)/(n*entryBytes) {
		delete(x.open, n)
	}
	x.entries += n
	return nil
}

// vacant is the number of a chunk without memory.
func (x *index) vacant() uint32 {
	for i := range x.chunks {
		if x.chunks[i].memory == nil {
			return uint32(i)
		}
	}
	x.chunks = append(x.chunks, chunk{})
	return uint32(len(x.chunks) - 1)
}

// leave gives up the place that s has had. Nothing may use its entries any more.
func (x *index) leave(s *segment) {
	n := len(s.entries)
	if n == 0 {
		return
	}
	x.entries -= n
	c := &x.chunks[s.chunk]
	c.left++
	if c.left < c.taken {
		return
	}
	if at, ok := x.open[n]; ok && at == s.chunk {
		delete(x.open, n)
	}
	freeSlab(c.memory)
	*c = chunk{}
}

// bytes is the memory of the segments.
func (x *index) bytes() int64 { return int64(x.entries) * entryBytes }

func (x *index) free() {
	for i := range x.chunks {
		if x.chunks[i].memory != nil {
			freeSlab(x.chunks[i].memory)
		}
	}
	*x = index{}
}
