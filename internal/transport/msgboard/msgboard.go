// Package msgboard is the transport.Board of a lane whose members share no
// memory. Member 0, the coordinator, holds a board.Board in its heap, of which
// it is the only reader. The others send it frames (mark, request, close), and
// it sends each of them every batch that it cuts, so that all see the same
// records in the same cuts.
//
//	member m                     member 0
//	Mark, Post, Close ──────────▶ Receive ─▶ board, mail
//	inbox ◀── Receive ◀────────── Next: cut a batch, send it to all, return it
//	  └─▶ Next
//
// Nothing here blocks and no queue grows without a limit: each direction has a
// window of bytes, which the receiver's driver gives back as it takes frames
// (credit). Where a window is used up, Post says false and the coordinator's
// Next says nil until credit comes, which rings the bell. Who exceeds a window
// has broken the protocol, and Receive says so.
//
// The package knows no sockets: frames travel over a Pipe.
package msgboard

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/board"
)

// Pipe carries a member's frames to the others, in order per receiver.
type Pipe interface {
	// Send queues a copy of frame for member to. It never blocks, and is safe on
	// any goroutine. At most QueueLimit bytes are ever queued for a member.
	Send(to int, frame []byte)
}

// Board is one member's end.
type Board interface {
	transport.Board
	// Receive takes one frame from member from (valid during the call only), and
	// rings the bell if there is news for the driver. Frames of one member come
	// from one goroutine, in the order in which they were sent; different
	// members' may come at once. It never blocks. An error says that the sender
	// has broken the protocol; the lane cannot go on then.
	Receive(from int, frame []byte) error
}

const (
	// requestWindow is what a member may have posted and the coordinator's driver
	// not yet taken. It holds several of the largest Request.
	requestWindow = 4 * transport.MaxRecord
	// batchWindow: the coordinator cuts no batch while a member has this much of
	// earlier ones that its driver has not taken.
	batchWindow = 1 << 20
)

// shape is the coordinator's board. Its mailboxes are not used: Requests wait in
// the coordinator's mail, which costs memory only where there are some.
func shape(size, slots int) board.Config {
	c := board.Standard(size, 1, slots)
	c.MailBytes = 64
	return c
}

// batchLimit is the largest batch frame: a record takes more bytes in the log
// than in a frame.
func batchLimit(slots int) int {
	return 1 + shape(1, slots).LogBytes
}

// QueueLimit is an upper limit of the bytes that a board with this many slots
// has outstanding in a Pipe for one receiver, with up to 16 bytes of framing
// for each frame.
func QueueLimit(slots int) int {
	return 2*(requestWindow+batchWindow+batchLimit(slots)) + 64*slots
}

// Config describes one member's end of a lane.
type Config struct {
	Member int // this member; 0 is the coordinator
	Size   int // how many members the lane has
	Slots  int // cache slots; the same on all members
	Pipe   Pipe
	// Ring wakes this member's driver. Called on any goroutine, also with locks
	// of this package held: it must not block nor call the Board.
	Ring func()
	// Abort takes an error after which the lane cannot go on, where the call
	// that met it has no way to return one. As Ring, it must not block.
	Abort func(error)
}

// New makes one member's end. All ends of a lane must be made with the same
// Size and Slots.
func New(c Config) (Board, error) {
	if c.Size < 1 || c.Member < 0 || c.Member >= c.Size {
		return nil, fmt.Errorf("message board: member %d of %d", c.Member, c.Size)
	}
	if c.Member == 0 {
		return newCoordinator(c)
	}
	return newMember(c), nil
}
