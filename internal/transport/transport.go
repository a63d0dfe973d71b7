// Package transport defines how the members of a lane reach one another: a
// Board on which they agree what to do next, and memory or messages through
// which the data moves. Its subpackages implement it: shm (one host), tcp
// (connections alone), hosts (both), inproc (ranks of one process, for tests and
// simulation).
// A transport knows nothing of tensors, names or collectives.
//
// Nothing in these interfaces blocks except Bell.Sleep and Network.OpenLane:
// operations are posted, and progress is polled by the one goroutine or
// thread that drives the rank's engine. So there is one place to wait, and
// one place where an abort, a time-out or an interrupt is noticed.
package transport

import "time"

// Network is a rank's attachment to one generation of the world.
type Network interface {
	// Name says what carries the data: "shm", "tcp", "shm+tcp" or "inproc".
	Name() string
	// OpenLane makes the lane with the given id among members (world ranks,
	// ascending, including this one). All members must open it. It blocks
	// until this member's part is ready, at most the network's start timeout. An
	// id may be used again, with a greater incarnation, after CloseLane by all.
	OpenLane(id int, incarnation uint32, members []int) (*Lane, error)
	// CloseLane gives up this member's part in an open lane. When it returns
	// nothing touches a buffer that was posted to the lane. It does not wait for
	// the other members. It belongs to the driver.
	CloseLane(id int) error
	// Bell is this rank's alarm clock, common to all of its lanes.
	Bell() Bell
	// Err is nil until the network is aborted; then it is the first cause.
	// It is cheap (an atomic load) and safe on any goroutine.
	Err() error
	// Abort latches cause if it is the first, tells the other ranks of it as
	// far as they can be reached, and rings the bell. Safe on any goroutine.
	Abort(cause error)
	// Close releases everything. When it returns nothing of this network
	// touches a buffer that was posted to it. Closing twice is allowed.
	Close() error
}

// Attended is a Network that may have news for a rank which has nothing pending,
// so that nobody drives: its board passes on what others say.
type Attended interface {
	// Attend gives the function that makes the rank's driver look once. It is called
	// on goroutines of the network, and must not block.
	Attend(wake func())
}

// Verified is a Network that can tell whether what its ranks share is as this rank has
// left it. Who waits for long finds a damage so that looks like a slow rank.
type Verified interface {
	// Verify is nil, or says what is damaged. It belongs to the driver, and takes microseconds.
	Verify() error
}

// Lane is one process set's private way: its own board, its own data path,
// its own sequence.
//
// Where all members are on one host, Shared serves all of them and Hosts and
// Comm are nil. Otherwise Comm serves all of them, and Shared those of this
// member's host: its Rank and Size count them, in the order in which Hosts lists
// them. It is nil where this member is alone on its host; one that shares no
// memory with its neighbours counts as a host of its own.
type Lane struct {
	Board  Board
	Shared Shared
	Comm   Comm
	// Hosts are the lane's members by host, the same on all of them: each list
	// ascending, the lists in the order of their first members. Nil over Shared
	// alone; nil over Comm means that every member is a host of its own.
	Hosts [][]int
}

// Bell wakes the driver of one rank. The driver calls Arm, polls everything
// once more, then Sleep (or Disarm when the poll found work):
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
	// Ring wakes this rank's own driver.
	Ring()
}

// AmidBell is a Bell that tells a log's news from others.
type AmidBell interface {
	Bell
	// ArmAmid is Arm for a driver that has begun a collective in every lane, and so can do nothing about a new
	// record of a log: such a record need not ring.
	ArmAmid() (ticket uint32)
}

// Record kinds of a lane's log.
const (
	// RecordCard says that a cached card is ready on all members: 4 bytes, the card.
	RecordCard byte = 1
	// RecordResponse carries one encoded Response of the coordinator.
	RecordResponse byte = 2
	// RecordRetired says that a generation of a card has ended. It is the boards'
	// own, between hosts: Next never returns it.
	RecordRetired byte = 3
)

// MaxRecord is the largest encoded Request or Response in bytes.
const MaxRecord = 128 << 10

// Mark names a card at a generation.
type Mark struct{ Card, Gen uint32 }

// Board is where the members of one lane agree on what is executed next.
//
// A card stands for a request that all members have seen before. A member
// that has submitted it again marks the card; the mark that completes the set
// publishes the card in the lane's ordered log. What has no card is negotiated:
// members post Requests to the coordinator (member 0 of the lane), which
// publishes Responses in the same log. All members read the same log, cut into
// the same batches.
//
// Mark, MarkGroup and Post are safe on any goroutine; the rest belongs to the driver.
type Board interface {
	// Mark declares that this member is ready for the card at this generation.
	// It returns false when the card has been retired since: the caller then
	// posts a full Request.
	Mark(card, gen uint32) bool
	// MarkGroup marks several cards in one step: where these are the last marks
	// missing, all of the cards are published together. False: one of them has been
	// retired, and none was marked.
	MarkGroup(marks []Mark) bool
	// Stale calls f for each mark that returned true but was found to be of an
	// old generation later (only where the coordinator is not in the same memory).
	Stale(f func(card, gen uint32))
	// Post sends an encoded Request (at most MaxRecord bytes, copied) to the
	// coordinator. False means that there is no room now: keep it, drive, retry.
	Post(request []byte) bool

	// Next returns the next batch: a sequence of records, the same on every
	// member. Nil when there is none. The records are valid until the next call.
	Next() []Record
	// Closed reports that the log has been closed and read to its end.
	Closed() bool
	// Close closes the log for all members: nothing is published after it, and
	// what was published before it can still be executed. by is this member.
	Close()
	// ClosedBy is the lane member that closed the log first; -1 if none.
	ClosedBy() int

	// The coordinator's part; the other members may not call these.

	// Requests calls f for every posted Request. Several members that have posted
	// the same may come together: from lists them, ascending. The Requests of one
	// member are in order, but for what a Combiner has held. from and p are valid
	// during the call only.
	Requests(f func(from []int, p []byte))
	// Publish appends an encoded Response to the log. False: no room now, retry later.
	Publish(response []byte) bool
	// Acquire returns a card for a new Response with its new generation, retiring
	// the one that has been unused for longest where all are taken. False: all
	// cards are in use at this moment.
	Acquire() (card, gen uint32, ok bool)
	// Retire ends the card's generation and returns which members had marked it.
	// False: nobody has acquired the card. A record of the card that is in the log
	// already stands.
	Retire(card uint32) (marked []int, ok bool)
	// Marked lists which members have marked the card, for the stall report.
	Marked(card uint32) []int
}

// Combiner merges equal Requests on their way to the coordinator: the leader of a
// host passes those of all members below it through one. It keeps what nobody
// needs before others have asked for the same. Calls are not concurrent.
type Combiner interface {
	// Take takes an encoded Request that the members from (lane members, ascending)
	// have posted, and calls pass for each Request that is to go on now, in order. It
	// keeps neither from nor request; what pass is given is valid during the call only.
	// An error means that the Request is malformed.
	Take(from []int, request []byte, pass func(from []int, request []byte)) error
}

// Record is one entry of a lane's log.
type Record struct {
	Kind byte
	// Chained is the boards' own: the next record was completed by the same MarkGroup.
	Chained bool
	Card    uint32 // RecordCard, RecordRetired
	Gen     uint32 // the card's generation at that time; of RecordRetired the one that has ended
	Payload []byte // RecordResponse
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

// Shared is memory that all members of a lane map: for each member a ring of
// Depth staging buffers, and for each member a counter per phase. A member
// writes only its own buffers and counters, and reads everybody's.
//
// Chunks are numbered from 0 over the whole life of the lane, the same on all
// members; chunk k lives in buffer k % Depth of each member. A member may fill
// its buffer for chunk k once every member's Out counter is at least k+1-Depth.
// The counters say how many chunks have passed the phase.
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
	// Advance publishes this member's counter (a release store). If it was the last for which the lowest of all
	// members' counters of the phase has waited, it rings those members that sleep: they wait for that one.
	Advance(p Phase, v uint64)
	// Lead is Advance where others wait for this member's counter alone: it always rings.
	Lead(p Phase, v uint64)
}

// Comm moves bytes between the members of one lane, in order per pair. At most
// one send and one receive per peer may be posted at a time. A posted buffer
// belongs to the transport until the operation is reported done.
type Comm interface {
	Rank() int
	Size() int
	// Send posts p for member `to`.
	Send(to int, p []byte)
	// Sent reports that nothing posted for `to` is outstanding.
	Sent(to int) bool
	// Recv posts p to be filled completely by bytes from member `from`. A message
	// of another length is an error that aborts the network.
	Recv(from int, p []byte)
	// Received reports that nothing posted for `from` is outstanding.
	Received(from int) bool
}
