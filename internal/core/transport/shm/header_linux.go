package shm

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// header is the mapping of the segment's first part. It stays mapped until the garbage collector finds that nobody can
// use it any more. So any goroutine may use Err, Abort and a bell without a guard against Close. Each method that
// touches the mapping keeps h alive until it returns.
type header struct {
	mem    []byte
	size   int     // ranks
	events *events // nil: bells are futexes
}

// mapHeader maps the first part of fd.
func mapHeader(fd, size int) (*header, error) {
	mem, err := mapShared(fd, 0, headBytes(size))
	if err != nil {
		return nil, err
	}
	h := &header{mem: mem, size: size}
	runtime.AddCleanup(h, func(mem []byte) { unix.Munmap(mem) }, mem)
	return h, nil
}

func (h *header) regs() *registers { return (*registers)(unsafe.Pointer(&h.mem[0])) }

func (h *header) pid(rank int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&h.mem[pidsOffset()+8*rank]))
}

func (h *header) bell(rank int) *bellState {
	return (*bellState)(unsafe.Pointer(&h.mem[bellsOffset(h.size)+rank*bellSize]))
}

func (h *header) copyState(rank int) *copyState {
	return (*copyState)(unsafe.Pointer(&h.mem[copyOffset(h.size)+rank*copyStateBytes]))
}

// crowded reports that the ranks outnumber the cores. The rank that made the segment has counted them, because other
// ranks may be bound to other cores.
func (h *header) crowded() bool {
	defer runtime.KeepAlive(h)
	cores := h.regs().cores
	return cores > 0 && uint64(h.size) > cores
}

// format writes the identity of a fresh segment.
func (h *header) format(c Config) {
	r := h.regs()
	r.version, r.generation = version, c.Generation
	r.size, r.cards, r.bytes = uint64(c.Size), uint64(c.Cards), uint64(segmentBytes(c))
	r.ranks, r.cores = hashRanks(c.Ranks), uint64(c.Cores)
	r.magic = magic
	runtime.KeepAlive(h)
}

// check compares the segment's identity with what this rank expects.
func (h *header) check(c Config) error {
	defer runtime.KeepAlive(h)
	r := h.regs()
	switch {
	case r.magic != magic:
		return fmt.Errorf("the segment's magic number is %#x, want %#x", r.magic, uint64(magic))
	case r.version != version:
		return fmt.Errorf("the segment has layout version %d, want %d: all ranks must run the same gorovod",
			r.version, version)
	case r.generation != c.Generation:
		return fmt.Errorf("the segment is of generation %d, want %d", r.generation, c.Generation)
	case r.size != uint64(c.Size) || r.cards != uint64(c.Cards) || r.bytes != uint64(segmentBytes(c)):
		return fmt.Errorf("the segment is for %d ranks and %d cards, want %d and %d", r.size, r.cards, c.Size, c.Cards)
	case r.ranks != hashRanks(c.Ranks):
		return fmt.Errorf("the segment is not for the ranks %v", c.Ranks)
	}
	return nil
}

// laneWords are the words that say who may use the lanes after the world's. Tests damage them.
func (h *header) laneWords() (words [][]byte) {
	for id := 1; id < 4; id++ {
		l := &h.regs().lanes[id]
		for _, p := range []unsafe.Pointer{unsafe.Pointer(&l.state), unsafe.Pointer(&l.incarnation),
			unsafe.Pointer(&l.members)} {
			words = append(words, unsafe.Slice((*byte)(p), 8))
		}
	}
	return words
}

// abort writes the abort record of a world rank. It returns false if there is one already.
func (h *header) abort(rank int, text string) bool {
	defer runtime.KeepAlive(h)
	r := h.regs()
	if !r.abortState.CompareAndSwap(abortNone, abortWriting) {
		return false
	}
	r.abortBy = uint32(rank)
	r.abortLen = uint32(copy(r.abortText[:], text))
	r.abortState.Store(abortReady)
	return true
}

// aborted reports that the abort record can be read.
func (h *header) aborted() bool {
	ready := h.regs().abortState.Load() == abortReady
	runtime.KeepAlive(h)
	return ready
}

// abortCause is the abort record as an error.
func (h *header) abortCause() error {
	defer runtime.KeepAlive(h)
	r := h.regs()
	n := min(int(r.abortLen), maxAbortText)
	text := strings.ToValidUTF8(string(r.abortText[:n]), "")
	if text == "" {
		text = "the shared segment is corrupt: it holds an abort that nobody has written"
	}
	return &transport.Report{Rank: int(r.abortBy), Text: text}
}
