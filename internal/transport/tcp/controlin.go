package tcp

import "github.com/gorovod/gorovod/internal/transport/treeboard"

// controlIn takes the board frames of one other member. While its connection is lent, the
// driver takes them whenever it polls; while nobody drives, the keeper does. While it is held,
// its goroutine, serve, does.
type controlIn struct {
	lane *lane
	from int

	half
	sequence uint32
	buffer   []byte // the first `filled` bytes have come and not been taken
	filled   int
	scatter  scatter

	polls uint32 // the keeper's: lane.polls when it looked last
}

// frameBuffer is how much of a control connection is read at once; it grows where a
// frame is longer.
const frameBuffer = 16 << 10

func (i *controlIn) init(l *lane, from int) { i.lane, i.from = l, from }

// limit is the longest frame.
func (i *controlIn) limit() uint64 { return uint64(treeboard.QueueLimit(i.lane.net.cfg.Cards)) }
