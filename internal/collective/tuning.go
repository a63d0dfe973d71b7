package collective

// Tuning is what may be changed about a lane's algorithms while it runs. A
// result's bits over Shared do not depend on it.
type Tuning struct {
	// Chunk is the most that one chunk of a pipelined operation over Shared holds,
	// in bytes; the size of the staging buffers bounds it.
	Chunk int
	// Piece is how much an operation over Comm sends at a time, in bytes.
	Piece int
}

// DefaultTuning is that of a new Lane.
var DefaultTuning = Tuning{Chunk: 512 << 10, Piece: pieceBytes}

// Tune changes the lane's tuning for the operations that are started from now
// on. All members call it between the same two operations.
func (l *Lane) Tune(t Tuning) {
	if l.busy {
		panic("collective: the tuning is changed while an operation runs")
	}
	l.chunkLimit = max(lineBytes*l.size, t.Chunk/(lineBytes*l.size)*(lineBytes*l.size))
	l.piece = max(lineBytes, t.Piece/lineBytes*lineBytes)
	if h := l.hier; h != nil {
		h.local.Tune(t)
		if h.cross != nil {
			h.cross.Tune(t)
		}
	}
}
