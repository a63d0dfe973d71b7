package collective

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
	l.message, l.flat = t.Message, t.Flat
	if h := l.hier; h != nil {
		h.local.Tune(t)
		if h.cross != nil {
			h.cross.Tune(t)
		}
	}
}
