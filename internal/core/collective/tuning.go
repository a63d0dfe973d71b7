package collective

import (
	"math/bits"
	"time"
)

// Tuning holds the parameters of a lane's algorithms that may change while it runs. Over Shared the bits of a result do
// not depend on them.
type Tuning struct {
	// Chunk is the most that one chunk of a pipelined operation over Shared holds, in bytes. The size of the staging
	// buffers bounds it.
	Chunk int
	// Piece is the number of bytes that an operation over Comm sends at a time.
	Piece int
	// Message is the cost of a message over Comm beyond its bytes, expressed in bytes: see model.go. It decides between
	// few long messages and many short ones.
	Message int
	// Rate is how many bytes a second pass from one member to another over Comm; 0: unknown. Then the model's constants
	// are those of a fast network.
	Rate int
	// Flat turns off the hierarchical form of allreduces, if the model decides about it (Abilities.ChoosesForm).
	Flat bool
}

// DefaultTuning is the tuning of a new Lane.
var DefaultTuning = Tuning{Chunk: 512 << 10, Piece: pieceBytes, Message: messageBytes}

// Tune changes the lane's tuning for the operations that are started from now
// on. All members call it between the same two operations.
func (l *Lane) Tune(t Tuning) {
	if l.busy {
		panic("collective: the tuning is changed while an operation runs")
	}
	l.chunkLimit = max(lineBytes*l.size, t.Chunk/(lineBytes*l.size)*(lineBytes*l.size))
	l.piece = max(lineBytes, t.Piece/lineBytes*lineBytes)
	l.message, l.rate, l.flat = t.Message, t.Rate, t.Flat
	if h := l.hier; h != nil {
		h.local.Tune(t)
		if h.cross != nil {
			h.cross.Tune(t)
		}
	}
}

// Link is a connection between two members on different hosts, or the slowest of several.
type Link struct {
	Latency time.Duration // from one member's post to the other's notice
	Rate    int           // bytes a second; 0: the link is unknown
}

// The limits of what a measured Link changes.
const (
	leastRate, mostRate       = 1e6, 1e11
	leastMessage, mostMessage = 2 << 10, 8 << 20
)

// Over is the tuning for members between which the links are as k says: t itself if they are unknown. It knows the
// links by powers of two alone. So most jobs on the same network choose the same algorithms, and get the same bits.
func (t Tuning) Over(k Link) Tuning {
	if k.Rate <= 0 {
		return t
	}
	rate := min(max(k.Rate, leastRate), mostRate)
	t.Message = min(max(powerOfTwo(inBytes(k.Latency, rate)), leastMessage), mostMessage)
	t.Rate = powerOfTwo(rate)
	return t
}

// powerOfTwo is the nearest power of two in proportion.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n*7/10)) }

// inBytes is what a link carries in a time of up to seconds.
func inBytes(d time.Duration, rate int) int {
	return int(min(max(d, 0), time.Minute).Microseconds()) * (rate / 1e3) / 1e3
}
