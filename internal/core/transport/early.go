package transport

import "github.com/gorovod/gorovod/internal/base/tensor"

// Operand is what a member contributes to a small allreduce. It travels ahead: with the member's mark.
type Operand struct {
	DType  tensor.DType
	Reduce tensor.ReduceOp
	// Scale is the factor for the result.
	Scale float64
	// Data is whole elements, and the same number of bytes on all members.
	Data []byte
}

// EarlyBoard is a Board whose marks may carry data. A lane over several hosts has one. If all members have sent their
// operands with their marks of a card, the card's record in the log is a RecordResult, and carries the result. In any
// other case it is a RecordCard, and the board forgets the operands.
//
// The operands of a host are combined in the order of its members, and these results in the order of the hosts
// (Lane.Hosts), so that the result has the bits of a deterministic allreduce.
type EarlyBoard interface {
	Board
	// EarlyBytes is how many bytes of a member's operands may be under way in this lane, if up to wanted bytes may in a
	// lane on few hosts: no more than there is room for, and less on many hosts. 0: no data travels ahead. It is the
	// same on all members.
	EarlyBytes(wanted int) int
	// BoundEarly sets how many bytes of this member's operands may be under way at a time, at most what EarlyBytes
	// returns. Before the first call it is as much as there is room for. Members may have different bounds. It is as
	// safe as Mark.
	BoundEarly(bytes int)
	// MarkWith is Mark with an operand, of which it takes a copy. The operand stays behind if the bound leaves no room
	// for it, or if too many of this member's operands are under way. MarkWith is as safe as Mark.
	MarkWith(card, gen uint32, o *Operand) bool
	// EarlySent counts the bytes of operands and results that this member has sent: to memory that its host shares, and
	// over connections. It is safe on any goroutine.
	EarlySent() (memory, connections uint64)
}
