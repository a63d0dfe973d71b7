package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

const (
	// MaxLanes is how many lanes a segment has room for; their ids are below it.
	MaxLanes = 32

	depth = 4

	// ChunkBytes before rounding: large, so that ranks that share cores seldom wait for one another, but small enough
	// that all members' buffers together fit into a cache.
	leastTile  = 64 << 10
	mostTile   = 512 << 10
	laneTarget = 8 << 20
	pageSize   = 64 << 10 // a multiple of every architecture's page

	magic   = 0x676f726f766f6453
	version = 7

	maxAbortText = 4 << 10

	identityBytes = 7 * 8 // the first bytes of registers, which ranks compare
)

// registers is the first part of the segment.
type registers struct {
	magic, version, generation uint64
	size, cards, bytes         uint64
	ranks                      uint64 // hash of the ranks' numbers in the world
	cores                      uint64 // that the ranks share, as the rank that made the segment sees it; 0: enough

	abortState atomic.Uint32 // abortNone, abortWriting, abortReady
	abortBy    uint32        // the world rank that aborted
	abortLen   uint32
	_          [13]uint32
	abortText  [maxAbortText]byte

	lanes [MaxLanes]laneState
}

const (
	abortNone = iota
	abortWriting
	abortReady
)

// laneState says which ranks may use a lane's region.
type laneState struct {
	state       atomic.Uint32 // laneFree, laneFormatting, laneReady
	departed    atomic.Uint32 // members that have closed it
	incarnation atomic.Uint64 // counts formattings
	members     atomic.Uint64 // hash of the member list
	_           [5]uint64
}

const (
	laneFree = iota
	laneFormatting
	laneReady
)

// bellState is a rank's bell, on two cache lines of its own since processors
// fetch lines in pairs.
type bellState struct {
	word     atomic.Uint32 // a futex; changes with each ring that finds the rank armed
	sleeping atomic.Uint32 // asleep or asleepAmid from Arm to Disarm, or until somebody rings; else awake
	_        [30]uint32
}

// counter is one phase of one member.
type counter struct {
	v atomic.Uint64
	_ [7]uint64
}

const (
	counterSize = int(unsafe.Sizeof(counter{}))
	bellSize    = int(unsafe.Sizeof(bellState{}))
)

// The pids follow the registers, then come the bells, then the copyStates, and from the next page on the lanes.
func pidsOffset() int          { return int(unsafe.Sizeof(registers{})) }
func bellsOffset(size int) int { return roundUp(pidsOffset()+8*size, 128) }

func copyOffset(size int) int { return bellsOffset(size) + size*bellSize }

// headBytes is the size of the header, a multiple of the page size.
func headBytes(size int) int { return roundUp(copyOffset(size)+size*copyStateBytes, pageSize) }

// chunkBytes is ChunkBytes of a lane of n members.
func chunkBytes(n int) int {
	return roundUp(min(max(laneTarget/(depth*n), leastTile), mostTile), 64*n)
}

// laneLayout gives the offsets inside a lane's region.
type laneLayout struct{ counters, buffers, size int }

// layoutOf is the layout of a lane whose boards take that many bytes.
func layoutOf(boards, members int) laneLayout {
	var l laneLayout
	l.counters = roundUp(boards, 64)
	l.buffers = roundUp(l.counters+members*int(transport.NumPhases)*counterSize, 4096)
	l.size = l.buffers + members*depth*chunkBytes(members)
	return l
}

// laneBytes is the room for a lane, enough for any number of members up to Size.
func laneBytes(c Config) int {
	boards := max(c.BoardBytes, board.Bytes(boardConfig(c.Size, c.Cards)))
	return roundUp(layoutOf(boards, c.Size).size+c.Size*depth*64*c.Size, pageSize)
}

// BoardBytes is the size of boards of these shapes in a lane, each at a multiple of 64 bytes.
func BoardBytes(shapes ...board.Config) (n int) {
	for _, c := range shapes {
		n += roundUp(board.Bytes(c), 64)
	}
	return n
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
