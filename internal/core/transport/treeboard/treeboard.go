// Package treeboard is the transport.Board of a lane that spans hosts. The members of a host share two boards; the
// first member of each host is its leader, and the leaders form a tree over which they send frames.
//
//	members of a host           their leader                  its parent
//	Mark, Post, Close ──▶ up ──▶ what the host has completed ──▶ up of the parent's host
//	           Next ◀── down ◀── batches, as the root cut them ◀── and so on from the root
//
// A mark moves up:
//
//  1. The members of a host mark a card on the host's board "up". The leader marks
//     it for a child host when that child's frame says that all below have.
//  2. When the card is complete there, the leader sends its parent a mark of this host.
//  3. A card that is complete at the root, the leader of the host of member 0, goes
//     into the lane's log. The Coordinator publishes into the same log.
//
// The log comes down: the root's driver cuts it into batches. Every leader relays
// each batch to its board "down", which all members of the host read, and to its
// children. So a leader's link carries each mark, batch and (by a Combiner) each
// Request once, however many ranks a host has.
//
// Only the root retires a card. The log says so in a record of its own (transport.RecordRetired). Each leader that
// relays this record retires the card on its board. A member with a mark of that generation then reports it by
// TakeStale; on the root's own host Retire takes the marks back. The other hosts' boards learn of a card's next
// generation by its first mark. No member can make that mark before this leader has relayed the end of the last
// generation.
//
// A leader sends frames when a frame comes in (Receive), when its driver gives the board a turn (Poll and Cut), and at
// Close. Marks, Requests and questions send none: they ring the leader's bell. The coordinator takes from the root's
// board only what Poll has taken before.
//
// # Data ahead
//
// The operand of a small allreduce travels with its mark (transport.EarlyBoard), so that the record in the log can
// carry the result, and no collective follows. One small tensor then makes one journey: up the tree and down again.
//
//	member                        leader                                root
//	Put: operand into a slot      Operand: all of its host's, combined
//	mark                          from below: kept until the card is
//	                              complete here
//	                              kindOperands: one operand a host  ──▶ Cut: all hosts' combined, in their order
//	Drop: the slot is free   ◀──  Relay, forward               ◀──────  RecordResult with the result
//
// The rules:
//
//   - An operand belongs to a mark: to a card at a generation. It is forgotten with its mark, when the generation ends.
//   - A leader sends operands up only if it has those of all hosts below, and the root makes a result only if it has
//     those of all. Otherwise only the marks count: the record is a RecordCard, and the members move their data as
//     usual. So each member decides for itself whether its data travels ahead. It does not if the operand is long, or
//     if too many operands of the member are under way, or too many bytes of them (BoundEarly).
//   - Leaders combine the operands of their own host, and pass on those of other hosts as they are. So the root
//     combines in the order of the hosts, wherever they are in the tree.
//   - A member's slot is on its host's board "up". The member frees it when it has read the card's record, or the end
//     of the generation; until then nobody else writes it.
//   - What comes from below waits with the leader, whoever has received it. Only drivers combine: Poll the operands of
//     a leader's host, the root's Cut those of all hosts. On a host of one rank there is nothing to combine, so whoever
//     has received the last operand sends all of them on. If something overtakes the driver that marks may not follow
//     (a Request, the end of a generation, the end of the log), the marks go on without their operands.
//   - The log decides, so it is the same on all members whether an operation has a result. After an abort some members
//     may have the result, as with any collective.
//
// # Limits
//
// Nothing here blocks, and every queue has a limit: each direction of a link has a window of bytes. The receiver gives
// bytes back when it has passed them on (credit); the root gives back those of Requests when its Poll takes them. While
// a window is used up, Requests wait in the members' mailboxes, and batches wait with the parent.
//
// The package knows no sockets: frames travel over a Pipe.
package treeboard

import (
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// Arity is the most children of a leader. Jobs of up to Arity+1 hosts are a star. A frame takes a little longer on its
// way down a deeper tree, but sending it to very many children would take much longer.
const Arity = 8

// Pipe carries a leader's frames to its parent and its children, and a member's
// rare calls to the leader of its host, in order per receiver. Its methods never block,
// and are safe on any goroutine.
type Pipe interface {
	// Send queues a copy of frame for member to. It is called with locks of this package
	// held, and makes no system call. At most QueueLimit bytes are ever queued for a member.
	Send(to int, frame []byte)
	// Flush makes sure that all frames queued so far are written. It is called without locks.
	Flush()
}

// Board is one member's end.
type Board interface {
	transport.EarlyBoard
	// Coordination is the board itself on member 0, nil elsewhere.
	Coordination() transport.Coordination
	// Poller is the board itself on a leader, nil elsewhere.
	Poller() transport.BoardPoller
	// Receive takes one frame from member from, and passes on what the frame completes, here or to others. It rings the
	// bell for the work that it leaves to the driver. The frame is valid during the call only. Frames of one member
	// come from one goroutine, in the order in which they were sent; frames of different members may come at once.
	// Receive never blocks. An error means that the sender has broken the protocol, so the lane cannot go on.
	Receive(from int, frame []byte) error
	// Linked reports whether frames travel between this member and another one: whether that one leads the parent's
	// host or a child's.
	Linked(member int) bool
	// Quiesce returns when no call on another goroutine touches the boards; later calls do nothing. Call it before the
	// boards' memory is unmapped.
	Quiesce()
}

const (
	// requestWindow is the most bytes of Requests that a leader may have sent while its parent has not passed them on.
	// It holds several of the largest Requests.
	requestWindow = 8 * transport.MaxRecord
	// batchWindow: a leader relays no batch while a child has not relayed this many bytes of earlier ones.
	batchWindow = 1 << 20
)

// Config describes one member's end of a lane.
type Config struct {
	Member int // this member; 0 is the coordinator
	// Hosts are the lane's members by host, as in transport.Lane: each list
	// ascending, the lists in the order of their first members.
	Hosts [][]int
	Cards int // cache cards; the same on all members
	// Early is the most bytes of a member's operands that may be under way with its marks, from 0 to MostEarly; 0: none
	// are. It is the same on all members. Less is possible in a lane on many hosts, and BoundEarly allows less.
	Early int
	// Up and Down are the boards of this member's host, of the shapes UpConfig and
	// DownConfig, in the same memory for all its members. Nil: New makes them, for a
	// host of one member. The Board sets their wake functions.
	Up, Down *board.Board
	Pipe     Pipe
	// Combine makes the Combiner for the given members, all those below a leader. Nil: all Requests go on as they are.
	Combine func(members []int) transport.Combiner
	// Ring wakes this member's driver, which then calls Poll, TakeStale, TakeRequests, Cut and Next.
	// Called on any goroutine, also with locks of this package held: it must not
	// block nor call the Board.
	//
	// A rank that has nothing pending has no driver to wake. That does not hurt its members' common operations, for
	// which the rank must first submit its own part. But the caller of Receive must make the rank drive once, because
	// members that settle or leave wait for nobody.
	Ring func()
	// RingLocal is Ring for the i-th member of this host. Not used, and may be nil,
	// on a host of one member.
	RingLocal func(i int)
	// Abort gets an error after which the lane cannot go on, if the call that met the error cannot return one. Like
	// Ring, it must not block.
	Abort func(error)
}

// UpConfig is the shape of a host's board for what moves up.
func UpConfig(hosts [][]int, host, cards, early int) board.Config {
	members := len(hosts[host]) + len(childrenOf(host, len(hosts)))
	c := board.Standard(members, 1, cards)
	c.Posters = len(hosts[host]) // the Requests of children come in frames
	if early > 0 {
		c.Slots, c.SlotBytes = slots, slotBytes(early)
	}
	if host == 0 {
		c.Announce = true
		c.LogBytes = logBytes(cards, 0)
	} else {
		c.Learn = true
		c.LogBytes = board.MinLog(cards)
	}
	return c
}

// DownConfig is the shape of a host's board for what moves down.
func DownConfig(hosts [][]int, host, cards, early int) board.Config {
	n := len(hosts[host])
	return board.Config{Members: n, Readers: n, Posters: 1, Cards: cards, LogBytes: logBytes(cards, early),
		MailboxBytes: board.MinMailbox, Closers: size(hosts)}
}

// logBytes is the size of the lane's log at the root, and of its relayed copies, which also carry results.
func logBytes(cards, early int) int {
	return board.Standard(1, 1, cards).LogBytes + board.MinLog(cards) + earlyRoom(early)
}

// batchLimit is the largest batch frame: a record takes hardly more bytes in a frame than in the log, so twice the log
// suffices.
func batchLimit(cards, early int) int { return 1 + 2*logBytes(cards, early) }

// operandsLimit is the largest frame of operands.
func operandsLimit(early int) int {
	if early == 0 {
		return 0
	}
	return 1 + slots*(operandsHead+fullHosts*early)
}

// QueueLimit bounds the bytes that a board with this many cards and this Config.Early has queued in a Pipe for one
// receiver, with up to 16 bytes of framing for each frame.
func QueueLimit(cards, early int) int {
	return 2*(requestWindow+batchWindow+batchLimit(cards, early)+operandsLimit(early)) + 64*cards
}

// New makes one member's end. All ends of a lane must be made with the same
// Hosts and Cards.
func New(c Config) (Board, error) {
	t, err := newTree(c.Hosts, c.Member)
	if err != nil {
		return nil, fmt.Errorf("tree board: %w", err)
	}
	if c.Early < 0 || c.Early > MostEarly {
		return nil, fmt.Errorf("tree board: operands of up to %d bytes, want at most %d", c.Early, MostEarly)
	}
	if c.Up == nil || c.Down == nil {
		if len(t.locals) > 1 {
			return nil, errors.New("tree board: a host of several members needs boards that they share")
		}
		if c.Up, err = board.NewPrivate(UpConfig(c.Hosts, t.host, c.Cards, c.Early)); err == nil {
			c.Down, err = board.NewPrivate(DownConfig(c.Hosts, t.host, c.Cards, c.Early))
		}
		if err != nil {
			return nil, fmt.Errorf("tree board: %w", err)
		}
	}
	m := newMember(c, t)
	switch {
	case t.local != 0:
		return m, nil
	case t.host == 0:
		return newRoot(m), nil
	}
	return newRelay(m), nil
}
