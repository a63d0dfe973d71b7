// Package collective holds the algorithms by which the members of a lane combine and exchange data, as resumable
// operations over transport.Shared, over transport.Comm, or over both if the members are on several hosts. It is a
// catalogue: one file an algorithm, whose doc comment states its steps, the bytes it moves and when it is chosen. The
// methods of Lane choose by properties that are equal on all members.
//
// The engine starts the same operations in the same order on every member of a lane and polls them. An operation never
// blocks, starts no goroutine, and knows nothing of names, negotiation or errors of the network. If a peer has died,
// the operation never becomes done, and the engine sees the abort.
package collective

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Op is a collective in progress.
type Op interface {
	// Advance does everything that is possible now without waiting, and reports whether the operation has ended. Then
	// the caller owns the buffers again. If it has not ended, another member must act first. That rings this rank's
	// bell, unless the carrier is Polled. An error of a Lane is about the arguments: it ends the operation before
	// anything was sent or changed, except in Alltoall. Errors of an Inspector and of other carriers may come later.
	// Any error ends the job.
	Advance() (done bool, err error)
}

// Lane is one member's part in a lane: the data path with the state that
// outlives an operation, and one reusable struct per algorithm, so that starting
// an operation allocates nothing. It belongs to the lane's driver.
//
// One operation runs at a time: starting another before Advance has reported
// the end of the first panics. The Op is valid until the next one is started.
// Buffers handed to an operation belong to it until it has ended (or, after an
// abort, until the network has been closed).
type Lane struct {
	rank, size int
	options    Options
	busy       bool
	moved      uint64     // see Moved; without the steps of hier
	sent       Sent       // likewise without hier's
	hier       *hierarchy // nil if no two members share a host, or if all do

	shared transport.Shared // nil over Comm
	chunk  uint64           // the next chunk's number
	low    [transport.NumPhases]uint64

	comm    transport.Comm // nil over Shared
	piece   int            // pieceBytes, unless tests or Tune change it; a multiple of lineBytes
	message int            // messageBytes, unless Tune changes it
	rate    int            // bytes a second over comm; 0: unknown; set by Tune
	flat    bool           // set by Tune: no hierarchical form where the model may choose
	// chunkLimit is the most that a chunk over Shared holds; a multiple of lineBytes×size.
	chunkLimit int
	delivery   delivery
	single     transport.SingleCopy // nil if the members cannot copy one another's memory
	cannotCopy bool                 // the members have found that they cannot, though they have single
	copyTrial  copyTrial            // of allreduces
	scattering copyTrial            // of reducescatters
	gathering  copyTrial            // of allgathers
	copyBytes  int                  // singleScratch, unless tests change it
	scratch    []byte               // as large as the largest need so far; kept

	srcs    [][]byte // size entries, for reduce.Reduce
	offsets []int    // size+1 entries: where each member's part starts, and the end
	places  []int    // the same for the received data, if its parts differ
	each    []int64  // size entries: the same number of bytes for each member
	starts  []int    // the places of an allreduce's parts, side by side; kept
	one     [1]Part  // for an operation on one part
	pieces  []Part   // of a reducescatter or allgather: see dealt; kept
	cursors []int    // size entries: in each region, the first piece that may reach into the next chunk
	packing Packing  // for operations whose parts must lie side by side
	// inspect is the Inspector of the operation under way; nil for none. Start alone sets it. It is an argument that
	// stays here, because as a parameter it would go through every method and every struct of arguments between Start
	// and the few algorithms that read it. It is safe here because a lane has one operation at a time. Where
	// operations do not begin by Start, as in the lanes of a hierarchy, none has an Inspector.
	inspect Inspector

	ended                 ended
	allreduceLocal        allreduceLocal
	allreduceFlat         allreduceSharedFlat
	allreducePipelined    allreduceSharedPipelined
	allreduceSingle       allreduceSharedSingle
	allgatherShared       allgatherShared
	alltoallShared        alltoallShared
	broadcastShared       broadcastShared
	barrierShared         barrierShared
	reducescatterShared   reducescatterShared
	ring                  ring
	allreduceDoubling     allreduceDoubling
	allreduceHalving      allreduceHalving
	alltoallPairwise      alltoallPairwise
	broadcastTree         broadcastTree
	barrierRounds         barrierDissemination
	reducescatterExchange reducescatterExchange
	reducescatterRing     reducescatterRing
	reducescatterWhole    reducescatterWhole
	adasum                adasum
	allreduceDirect       allreduceDirect
	allreduceQuantised    allreduceQuantised
	allreduceHierarchical allreduceHierarchical
	allreduceReplicated   allreduceReplicated
	allgatherHierarchical allgatherHierarchical
	broadcastHierarchical broadcastHierarchical
	barrierHierarchical   barrierHierarchical

	reducescatterHierarchical reducescatterHierarchical
	reduceShared              reduceShared
	reduceTree                reduceTree
	reduceHierarchical        reduceHierarchical
}

// NewLane makes a lane that owns the data path of t, which nobody has used before.
func NewLane(t *transport.Lane, o Options) *Lane {
	if t.Comm == nil {
		return newLane(t.Shared.Rank(), t.Shared.Size(), t.Shared, nil, o)
	}
	l := newLane(t.Comm.Rank(), t.Comm.Size(), nil, t.Comm, o)
	l.hier = newHierarchy(t, o)
	return l
}

// newLane makes a lane over shared or comm; over neither it has one member.
func newLane(rank, size int, shared transport.Shared, comm transport.Comm, o Options) *Lane {
	l := &Lane{rank: rank, size: size, shared: shared, comm: comm, options: o, piece: pieceBytes, message: messageBytes,
		copyBytes: singleScratch}
	l.srcs = make([][]byte, size)
	l.offsets = make([]int, size+1)
	l.places = make([]int, size+1)
	l.each = make([]int64, size)
	l.cursors = make([]int, size)
	l.packing.Rank = rank
	l.alltoallShared.starts = make([]int, size)
	l.adasum.init(size)
	if shared != nil {
		l.chunkLimit = shared.ChunkBytes()
		l.single, _ = shared.(transport.SingleCopy)
	}
	return l
}

// begin marks the lane as taken by one operation.
func (l *Lane) begin() {
	if l.busy {
		panic("collective: an operation is started while another one runs on the same lane")
	}
	l.busy = true
}

// end lets the next operation start.
func (l *Lane) end() {
	l.busy = false
	l.moved++
}

// done returns an operation that has nothing to do.
func (l *Lane) done() Op {
	l.begin()
	l.end()
	l.ended = ended{}
	return &l.ended
}

// refuse returns an operation that ends with an error of its arguments.
func (l *Lane) refuse(format string, a ...any) Op {
	l.ended = ended{fmt.Errorf(format, a...)}
	return &l.ended
}

type ended struct{ err error }

func (e *ended) Advance() (bool, error) { return true, e.err }

// Moved counts the steps that the operations of this lane have made: copies,
// reductions, posts and their completion. A driver that sees it unchanged after
// Advance knows that nothing could be done. It belongs to the lane's driver.
func (l *Lane) Moved() uint64 {
	if l.hier != nil {
		return l.moved + l.hier.moved()
	}
	return l.moved
}

// Sent is how many bytes of tensors a member has passed to others, by way: over shared memory those that it has put
// there or has copied straight from or to another member's memory. Bytes in shared memory count once, however many
// members read them. Headers, counters and what boards say are not in it.
type Sent [feed.NumWays]uint64

// Sent counts what goes over Shared as sent by memory, and what goes over a Comm as sent by TCP.
func (l *Lane) Sent() Sent {
	s := l.sent
	if h := l.hier; h != nil {
		s[feed.ByMemory] += h.local.sent[feed.ByMemory]
		if h.cross != nil {
			s[feed.ByTCP] += h.cross.sent[feed.ByTCP]
		}
	}
	return s
}

// publish advances this member's counter of phase p to v.
func (l *Lane) publish(p transport.Phase, v uint64) {
	l.moved++
	l.shared.Advance(p, v)
}

// lead is publish for a phase in which the others wait for this member alone.
func (l *Lane) lead(p transport.Phase, v uint64) {
	l.moved++
	l.shared.Lead(p, v)
}

// send posts p for member `to`.
func (l *Lane) send(to int, p []byte) {
	l.moved++
	l.sent[feed.ByTCP] += uint64(len(p))
	l.comm.Send(to, p)
}

// recv posts p to be filled by member `from`.
func (l *Lane) recv(from int, p []byte) {
	l.moved++
	l.comm.Recv(from, p)
}

// chunks reserves the numbers of the next n chunks and returns the first.
func (l *Lane) chunks(n int) uint64 {
	first := l.chunk
	l.chunk += uint64(n)
	return first
}

// allPast reports that the first v chunks have passed phase p on every member. It remembers the lowest counter that it
// has seen, so that it reads a late member's counter once for many chunks.
func (l *Lane) allPast(p transport.Phase, v uint64) bool {
	if l.low[p] >= v {
		return true
	}
	low := l.shared.Counter(0, p)
	for m := 1; m < l.size; m++ {
		low = min(low, l.shared.Counter(m, p))
	}
	l.low[p] = low
	return low >= v
}

// free reports that this member's buffer for chunk k may be written: no member still needs the chunk that was in it,
// Depth chunks earlier.
func (l *Lane) free(k uint64) bool {
	depth := uint64(l.shared.Depth())
	return k < depth || l.allPast(transport.Out, k+1-depth)
}

// temporary returns n bytes of the lane's scratch memory.
func (l *Lane) temporary(n int) []byte {
	if len(l.scratch) < n {
		l.scratch = make([]byte, n)
	}
	return l.scratch[:n]
}

// copyTo copies src to dst, of the same length, unless they are the same memory.
func copyTo(dst, src []byte) {
	if len(src) > 0 && &dst[0] != &src[0] {
		copy(dst, src)
	}
}
