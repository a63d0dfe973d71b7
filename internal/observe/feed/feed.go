// Package feed has what a rank tells of its work: counts and durations since its Init, and their encoding. The
// engine counts, package world tells the launcher when it asks, and package metrics shows the figures of all ranks.
// The package holds no state and does no I/O.
package feed

import (
	"slices"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Figures are the counts and durations of one rank. All but the gauges only grow while the rank belongs to one world.
type Figures struct {
	Works       []Work
	Tensors     []Tensors
	Traffic     []Traffic
	Negotiation Histogram // from a tensor's submission, or the time at which its input was ready, to its agreement
	// Waited is the time in which at least one tensor of this rank waited for other ranks, in nanoseconds, for each
	// process set alone. A join does not count: the rank has no more data, and nobody is late.
	Waited uint64
	// WaitedFor says for which ranks, ascending: those that were the last to submit what this rank had to wait for. An
	// answer to the launcher has only what is new in it, and in Works, Tensors and Traffic: see Told.
	WaitedFor []Late
	// Steps are the times from one reduction to the next of the largest tensor whose name comes again. A training loop
	// has one such reduction in each step.
	Steps   Histogram
	Samples uint64 // that the program says it has worked through

	Marks    uint64 // tensors that were announced by the response cache
	Requests uint64 // tensors that were announced in full
	NaNs     uint64 // tensors that this rank contributed with a NaN or an infinity

	Fusion Fusion
	Early  Early
	Hosts  Hosts

	// Gauges.
	Pending  uint64 // operations that have been submitted and have not ended
	Oldest   uint64 // the age of the oldest one in nanoseconds
	Resident uint64 // bytes of the process in memory; 0 where unknown
	// Waits are the operations that have not ended, at most MaxWaits: first those that wait for other ranks, the oldest
	// first. The list is complete if it has Pending of them.
	Waits []Wait

	// Sets are the numbers of the process sets of which this rank is a member, except the world: the first MostSets,
	// ascending.
	Sets []int

	// Stack is where the program's thread is, the outermost function first, if the launcher has asked for that.
	// Functions may be missing in between.
	Stack []Frame

	CPU  uint64 // processor time of all threads of the process, in nanoseconds; 0 where unknown
	Main Thread
	Link Link

	NIC NIC

	// Tables are the sparse tables of which this rank has a part: the last MaxTables that were made.
	Tables []Table
}

// Table is what a rank tells of its part of a sparse table, and of its use of the table.
type Table struct {
	Set  int    // process set
	Name string // at most maxTable bytes; a longer one is cut like that of a Wait

	// Gauges.
	Rows, Bytes uint64
	// Hottest is the share of the rank's lookups that goes to its 16 hottest keys, in millionths.
	Hottest uint64

	Pulls, Pushes      uint64 // that have ended
	PullTime, PushTime uint64 // in nanoseconds; of several tables that travelled together, each has its share
	Keys               uint64 // distinct ones of the batches that the rank has pulled
}

// NIC is the network interface over which a rank's connections to other ranks go; empty if they go over several, or if
// it is unknown.
type NIC struct {
	Name string
	Rate uint64 // bits a second that it can send; 0: unknown
}

// Thread is what the main thread of a process has done. Durations are in nanoseconds, 0 where unknown. Looks
// counts how often the thread was looked at while somebody watched the job. The counts after it say how often a look
// found the thread in that state.
type Thread struct {
	Running uint64 // had a core
	Starved uint64 // could have run, but had no core
	Looks   uint64
	Asleep  uint64 // in a call that waits for time to pass
	Reading uint64 // waits for a file, a pipe, a socket or another process
	Locked  uint64 // waits for another thread
}

// Frame is a function of a Python program.
type Frame struct {
	File string // the end of its path
	Func string
	Line int
}

// Link is the connection to another rank that was busiest of late.
type Link struct {
	To          string // the address of its other end, "" without one
	Busy, Bytes uint64 // for how many nanoseconds the busiest one had data under way, and what it has sent
}

// Late is how long a rank has waited for another one.
type Late struct {
	Rank        int
	Nanoseconds uint64
}

// Wait is an operation that has not ended.
type Wait struct {
	Set   int // process set
	Name  string
	Op    string
	Age   uint64 // nanoseconds
	Phase Phase
}

// Phase is how far an operation has come.
type Phase uint8

// The phases.
const (
	Waiting   Phase = iota // for other ranks
	Unready                // for its own input: no other rank knows of it
	Executing              // all ranks have submitted it
	numPhases
)

// MaxTables is the largest number of Figures.Tables.
const MaxTables = 64

// MostSets is the largest number of Figures.Sets.
const MostSets = 32

// The limits of Figures.Waits.
const (
	MaxWaits = 8
	maxName  = 96 // bytes of a name; a longer one is cut, with its last letters and an ellipsis
	maxOp    = 24
	maxTo    = 45 // bytes of an address
	maxNIC   = 15 // bytes of a NIC's name
	maxTable = 48 // bytes of a Table's name
	maxFile  = 48 // bytes of a Frame's File and Func; a longer one is cut like a name
	maxDepth = 16 // of a Stack
	maxLine  = 1 << 24
)

// Work is what the collectives of one kind and size have taken. Tensors that travelled together make one collective.
type Work struct {
	Op    operation.Kind
	Class Class
	Bytes uint64 // of their tensors
	Bus   uint64 // Bytes times the factor of the bus bandwidth, as NCCL's tests define it: see docs/metrics.md
	Times Histogram
}

// Traffic is what the collectives of one class of sizes have passed to other ranks in one way.
type Traffic struct {
	Way   Way
	Class Class
	Bytes uint64 // that this rank has sent
	Time  uint64 // that these collectives took, in nanoseconds
}

// Way is how data gets from rank to rank.
type Way uint8

// The ways. What MPI and NCCL send is not known: it is counted as the least that the operation has to send.
const (
	ByMemory Way = iota // shared memory
	ByTCP
	ByMPI
	ByNCCL
	NumWays
)

// Tensors counts operations that the program submitted and that have ended well.
type Tensors struct {
	Op    operation.Kind
	DType tensor.DType
	Set   int // process set; OtherSets for all from MaxSets on
	Count uint64
}

// MaxSets is the number of process sets that are counted apart, those with the lowest numbers.
const MaxSets = 16

// OtherSets stands for all process sets with the numbers MaxSets and above.
const OtherSets = MaxSets

// InSet reports whether the rank is a member of a process set. known is false if the list of sets ends before it.
func (f *Figures) InSet(set int) (member, known bool) {
	if set == 0 || slices.Contains(f.Sets, set) {
		return true, true
	}
	return false, len(f.Sets) < MostSets || set < f.Sets[len(f.Sets)-1]
}

// Early says how many small operations have come to their end with the agreement on them.
type Early struct {
	Operations uint64 // whose result came with the agreement
	Bytes      uint64 // how many bytes of a rank's tensors may travel so at a time now; 0: none
}

// Hosts says what the connections between the job's hosts are like: what was measured when the ranks met. All fields
// are 0 if nothing was.
type Hosts struct {
	Latency uint64 // from a host to another one, the longest, in nanoseconds
	Rate    uint64 // bytes a second from a host to another one, the lowest; 0: unknown
	Took    uint64 // for how many nanoseconds this rank measured
}

// Fusion says how well tensors that can be fused are fused.
type Fusion struct {
	Batches   uint64 // collectives of tensors that could have fused
	Tensors   uint64 // in these
	Bytes     uint64 // of these
	Threshold uint64 // the most bytes of one such collective now; 0: nothing fuses
}
