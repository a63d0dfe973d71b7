package tcp

import "github.com/gorovod/gorovod/internal/core/transport/treeboard"

// controlIn takes the board frames of one other member. While its connection is lent, the driver takes frames when it
// polls, or the keeper does while nobody drives. While the connection is held, its goroutine, serve, takes them.
type controlIn struct {
	lane *lane
	from int

	half
	sequence uint32
	buffer   []byte // the first `filled` bytes have come, and nobody has taken them
	filled   int
	scatter  scatter

	polls uint32 // the keeper's: lane.polls when it looked last
}

// frameBuffer is the first size of the buffer for reading a control connection. It grows for longer frames.
const frameBuffer = 16 << 10

func (i *controlIn) init(l *lane, from int) { i.lane, i.from = l, from }

// limit is the greatest length of a frame.
func (i *controlIn) limit() uint64 {
	return uint64(treeboard.QueueLimit(i.lane.net.cfg.Cards, i.lane.net.cfg.Early))
}
