// Package transport defines how the members of a lane reach one another: by a Board, on which they agree on the next
// operations, and by memory or messages, which move the data. Its subpackages implement it: shm (one host), tcp
// (connections alone), hosts (both), inproc (ranks of one process, for tests and simulation). A transport knows nothing
// of tensors, names or collectives.
//
// Nothing in these interfaces blocks except Bell.Sleep, Network.OpenLane and, for a bounded time, Network.Close and
// CloseLane. DESIGN.md has a table of all that may block. The caller posts an operation, and the one thread that drives
// the rank's engine polls the operation's progress. So there is one place to wait, and one place that notices an abort,
// a time-out or an interrupt.
package transport

import (
	"net/netip"
	"time"
)

// Network is a rank's attachment to one generation of the world.
type Network interface {
	// Name names the data path: "shm", "tcp", "shm+tcp" or "inproc".
	Name() string
	// OpenLane makes the lane with the given id among members (world ranks, ascending, including this one). All members
	// must open it. It blocks until this member's part is ready, at most the network's start timeout. After all members
	// have called CloseLane, the id may be used again, with a greater incarnation.
	OpenLane(id int, incarnation uint32, members []int) (*Lane, error)
	// CloseLane gives up this member's part in an open lane. When CloseLane has returned, nothing touches a buffer that
	// was posted to the lane. CloseLane does not wait for the other members. The driver calls it.
	CloseLane(id int) error
	// Bell is this rank's alarm clock, common to all of its lanes.
	Bell() Bell
	// Err is nil until the network is aborted; then it is the first cause. A call costs an atomic load, changes
	// nothing, and is safe on any goroutine.
	Err() error
	// Abort latches cause if it is the first, tells all ranks that it can reach, and rings the bell. It is safe on any
	// goroutine.
	Abort(cause error)
	// Close releases everything. When Close has returned, the network no longer touches buffers that were posted to it.
	// Closing twice is allowed.
	Close() error
}

// Attended is a Network that may have news for a rank which has nothing pending and so has no driver: its board passes
// on the messages of others.
type Attended interface {
	// Attend takes a function that makes the rank's driver look once. The network calls it on goroutines of its own. It
	// must not block.
	Attend(wake func())
}

// Verified is a Network that can check the memory which its ranks share. A waiting driver calls Verify, because
// corruption otherwise looks like a slow peer.
type Verified interface {
	// Verify returns nil, or an error that says what is damaged. The driver calls it. It takes microseconds.
	Verify() error
}

// Addressed is a Network with connections to other ranks.
type Addressed interface {
	// Addresses are those of this host from which the connections have gone out or come in, a few at most. It is safe
	// on any goroutine.
	Addresses() []netip.Addr
}

// Poller has work to do for other ranks. It does this work only when the driver gives it a turn, once in each round of
// the driver's loop. A question (Network.Err, Board.Last, Board.Closed, …) changes nothing for anybody. A call that
// takes something (Board.TakeStale, Board.Next, Coordination.TakeRequests) does not return it again: it makes room, and
// rings those that wait for room. Comm is no Poller: the calls of a collective move its data. A Network may be a
// Poller. The Poller of a lane's board is in Lane.Poller.
type Poller interface {
	// Poll does all that can be done now, and does not block. Only the driver calls it, before it asks the questions
	// whose answers depend on it.
	Poll()
}

// BoardPoller is the Poller of a board that spans hosts, on a member that leads its host. Poll takes the messages of
// other leaders, and sends on the marks and Requests of the members below; on the first host it takes these for the
// coordinator. It takes a lock or two, and a system call for each neighbour in the tree of leaders.
type BoardPoller interface {
	Poller
	// Cut ends a batch behind all records of the log and sends it to all members, if this member is the one that cuts.
	// The driver calls it before Next, when it could begin another batch: a later cut makes a larger batch. If the log
	// is empty, a call costs a lock.
	Cut()
}

// Lane is the private path of one process set: its own board, data path and order.
//
// If all members are on one host, Shared serves all of them, and Hosts and Comm are nil. Otherwise Comm serves all of
// them, and Shared serves the members of this member's host: its Rank and Size count these, in the order of their list
// in Hosts. Shared is nil if this member is alone on its host. A member that shares no memory with its neighbours
// counts as a host of its own.
type Lane struct {
	Board Board
	// Coordination is the board as the coordinator sees it: on member 0, nil on the others.
	Coordination Coordination
	// Poller does the board's work for other members. It is nil if all members share one memory, or if another member
	// of this host does the work.
	Poller BoardPoller
	Shared Shared
	Comm   Comm
	// Hosts are the lane's members by host, the same on all of them: each list
	// ascending, the lists in the order of their first members. Nil over Shared
	// alone; nil over Comm means that every member is a host of its own.
	Hosts [][]int
}

// Bell wakes the driver of one rank. The driver calls Arm and polls everything once more. If the poll found work, it
// calls Disarm, otherwise Sleep:
//
//	t := bell.Arm()
//	if poll() { bell.Disarm() } else { bell.Sleep(t, d) }
//
// A ring after Arm is never lost. Arm, Sleep and Disarm belong to the driver;
// Ring is safe on any goroutine.
type Bell interface {
	Arm() (ticket uint32)
	Disarm()
	// Sleep blocks until a ring later than Arm's ticket or until d has passed,
	// then disarms.
	Sleep(ticket uint32, d time.Duration)
	// Ring wakes this rank's own driver. Whoever rings has published his news before. Ring may be called at any time,
	// also after Network.Close: then it wakes nobody.
	Ring()
}

// AmidBell is a Bell that can ignore new records of a log.
type AmidBell interface {
	Bell
	// ArmAmid is Arm for a driver that has a collective under way in every lane. Such a driver cannot use a new record
	// of a log, so a record need not ring.
	ArmAmid() (ticket uint32)
}

// BulkBell is a Bell that can tell a wait for much from a wait for little.
type BulkBell interface {
	Bell
	// Bulk reports that all that the driver has looked for since the last call is the rest of long messages. A driver
	// that polls for these uses a core for as long as they are on their way. Sleep ends when a good part of one has
	// come or can be sent. The driver calls it.
	Bulk() bool
}

// Record kinds of a lane's log.
const (
	// RecordCard says that a cached card is ready on all members: 4 bytes, the card.
	RecordCard byte = 1
	// RecordResponse carries one encoded Response of the coordinator.
	RecordResponse byte = 2
	// RecordRetired says that a generation of a card has ended. Boards of several hosts use it among themselves: Next
	// never returns it.
	RecordRetired byte = 3
	// RecordResult is a RecordCard with the result of the card's allreduce: see EarlyBoard.
	RecordResult byte = 4
)

// MaxRecord is the largest encoded Request or Response in bytes.
const MaxRecord = 128 << 10

// Mark names a card at a generation.
type Mark struct{ Card, Gen uint32 }

// Board is the place where the members of one lane agree on the next operations.
//
// A card stands for a request that all members have seen before. A member that submits it again marks the card. The
// mark that completes the set publishes the card in the lane's ordered log. Other requests are negotiated: members post
// them to the coordinator (member 0 of the lane), which publishes Responses in the same log (Coordination). All members
// read the same log, cut into the same batches.
//
// Mark, MarkLast, MarkGroup and Post are safe on any goroutine; the driver calls the rest.
type Board interface {
	// Mark declares that this member is ready for the card at this generation. It returns false if the card has been
	// retired since. Then the caller posts a full Request.
	Mark(card, gen uint32) bool
	// MarkLast is Mark for a member that takes the next batch at once. If all members share one memory and the mark
	// completes the card, the batch ends here. That saves the members the meeting at the board's lock in Next.
	MarkLast(card, gen uint32) bool
	// MarkGroup marks several cards in one step. If no other marks are missing, all of the cards are published
	// together. It returns false if one of the cards has been retired: then it has marked none.
	MarkGroup(marks []Mark) bool
	// TakeStale calls f once for each mark for which Mark, MarkLast or MarkGroup returned true, but which turned out
	// later to be of an old generation. That happens only if the coordinator is not in the same memory.
	TakeStale(f func(card, gen uint32))
	// Post sends an encoded Request (at most MaxRecord bytes, copied) to the
	// coordinator. False means that there is no room now: keep it, drive, retry.
	Post(request []byte) bool

	// Next takes the next batch: a sequence of records, the same on every member; nil if there is none. The records are
	// valid until the next call. If all members share one memory, the first member that takes a batch ends it, or
	// MarkLast has done so. Otherwise BoardPoller.Cut ends it. The room of a batch that all members of a host have
	// taken is free. If Publish or Cut has found no room, Next rings the coordinator, or the leader of this host.
	Next() []Record
	// Last is the lane member that was the last to mark a card. Call it after Next has returned the card's record, and
	// before this member marks the card again. A call may touch a line of memory that another core has in its cache.
	Last(card uint32) int
	// Closed reports that the log has been closed and read to its end.
	Closed() bool
	// Close closes the log for all members, in the name of this member. Nothing is published after Close. Earlier
	// records can still be executed.
	Close()
	// ClosedBy is the lane member that closed the log first; -1 if none.
	ClosedBy() int
}

// Coordination is a board as the lane's coordinator sees it. The coordinator takes the members' Requests, and answers
// in the log that Board.Next reads. The driver alone calls it.
type Coordination interface {
	// TakeRequests calls f for every Request that has been posted, or that the last Poll has taken from other hosts.
	// Equal Requests of several members may come in one call: from lists the members, ascending. The Requests of one
	// member are in order, except where a Combiner has held some back. from and p are valid during the call only. It
	// rings a member whose Post has found no room.
	TakeRequests(f func(from []int, p []byte))
	// Publish appends encoded Responses to the log, in order, and returns the number of those for which there is room
	// now: retry the others later. No batch ends between two of them.
	Publish(responses ...[]byte) int
	// Acquire returns a card for a new Response with its new generation. If all cards are taken, it retires the card
	// that has been unused for longest. ok is false if all cards are in use at this moment.
	Acquire() (card, gen uint32, ok bool)
	// Retire ends the card's generation and returns the members that had marked it. A record of the card that is in the
	// log already remains valid. ok is false if nobody has acquired the card.
	Retire(card uint32) (marked []int, ok bool)
	// Marked lists the members that have marked the card, for the stall report.
	Marked(card uint32) []int
}

// Combiner merges equal Requests on their way to the coordinator. The leader of a host passes the Requests of all
// members below it through one. A Combiner holds a Request back for as long as the coordinator cannot need it. Calls
// are not concurrent.
type Combiner interface {
	// Take takes an encoded Request that the members from (lane members, ascending) have posted, and calls pass for
	// each Request to send on now, in order. It keeps neither from nor request, and pass must keep none of its
	// arguments. An error means that the Request is malformed.
	Take(from []int, request []byte, pass func(from []int, request []byte)) error
}

// Record is one entry of a lane's log.
type Record struct {
	Kind byte
	// Chained: the same MarkGroup has completed this record and the next one. Only boards use it.
	Chained bool
	Card    uint32 // RecordCard, RecordRetired, RecordResult
	// Last is the lane member whose mark completed the card. Boards of several hosts use it among themselves: see
	// Board.Last.
	Last    uint16
	Gen     uint32 // the card's generation at that time; for RecordRetired the generation that has ended
	Payload []byte // RecordResponse; RecordResult: the result
}

// Phase is one of the counters that each member of a shared lane publishes.
type Phase int

// The phases through which a chunk of data passes. Each counter only grows.
const (
	In  Phase = iota // this member's input of chunk k is in its buffer
	Mid              // this member's share of chunk k is reduced, in its buffer
	Out              // this member needs nothing of chunk k any more
	NumPhases
)

// Shared is memory that all members of a lane map: for each member a ring of Depth staging buffers, and a counter per
// phase. A member writes only its own buffers and counters, and reads everybody's.
//
// Chunks are numbered from 0 over the whole life of the lane, the same on all members. Chunk k lies in buffer k % Depth
// of each member. A member may fill its buffer for chunk k once every member's Out counter is at least k+1-Depth. A
// counter is the number of chunks that have passed its phase.
type Shared interface {
	Rank() int
	Size() int
	// Depth is the number of buffers of each member, at least 2.
	Depth() int
	// ChunkBytes is the size of one buffer, a multiple of 64×Size.
	ChunkBytes() int
	// Buffer is member m's buffer for chunk k, aligned to 64 bytes.
	Buffer(m int, chunk uint64) []byte
	// Counter is member m's counter of phase p (an acquire load).
	Counter(m int, p Phase) uint64
	// Advance publishes this member's counter (a release store). If this counter was the lowest of the phase and is no
	// longer, Advance rings the members that sleep, because they wait for it.
	Advance(p Phase, v uint64)
	// Lead is Advance for a phase in which others wait for this member's counter alone: it always rings.
	Lead(p Phase, v uint64)
}

// Comm moves bytes between the members of one lane, in order per pair. At most one send and one receive per peer may be
// posted at a time. A posted buffer belongs to the transport until Sent or Received reports the end.
//
// A Comm may move data during its calls only, by calls of the system or of MPI that do not block. So an operation asks
// at each Advance for what it waits for. Another member may wait for any other message, so all that is posted in the
// lane must then get on: tcp moves it within Sent and Received, and mpi.Lane before it calls Advance.
type Comm interface {
	Rank() int
	Size() int
	// Send posts p for member `to`.
	Send(to int, p []byte)
	// Sent moves what it can, and reports that nothing posted for `to` is outstanding.
	Sent(to int) bool
	// Recv posts p to be filled completely by bytes from member `from`. A message
	// of another length is an error that aborts the network.
	Recv(from int, p []byte)
	// Received moves what it can, and reports that nothing posted for `from` is outstanding.
	Received(from int) bool
}
