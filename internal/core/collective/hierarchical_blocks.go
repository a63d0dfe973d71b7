package collective

// blockwise runs a hierarchical reduction block by block. Each block passes three phases: reduce inside each host,
// cross between the hosts, gather inside the hosts that want the result.
//
// Inside a host the phases run in the order reduce 0, reduce 1, gather 0, reduce 2, gather 1, …, the same on all of its
// members, while the cross phases run independently, each as soon as its block is reduced. So the link between hosts
// waits only for the first reduce.
type blockwise struct {
	lane    *Lane
	phases  phases
	gathers bool // this host gathers: elsewhere a block ends with its cross phase
	shards  int
	blocks  int
	length  int // of all blocks but the last, in bytes

	inside    pass
	gathering bool // the operation inside is a gather
	across    pass
	reduced   int // blocks that have passed each phase
	crossed   int
	gathered  int
}

// phases start the operations of block b.
type phases interface {
	reduce(b int) Op
	cross(b int) Op // nil: this member has no shard of the block
	gather(b int) Op
}

// begin cuts n bytes into blocks.
func (w *blockwise) begin(l *Lane, p phases, n int, gathers bool) {
	shards := l.hier.shardsOf(n)
	blocks, length := l.hier.blocksOf(n, shards)
	*w = blockwise{lane: l, phases: p, gathers: gathers, shards: shards, blocks: blocks, length: length}
}

// Advance implements Op.
func (w *blockwise) Advance() (bool, error) { return w.lane.drive(w) }

// block is the range of n bytes that is block b, and the range in it that is this member's shard.
func (w *blockwise) block(b, n int) (lo, hi, from, to int) {
	lo = b * w.length
	hi = min(lo+w.length, n)
	from, to = w.lane.hier.deal(hi-lo, w.shards)
	return lo, hi, lo + from, lo + to
}

// ended is how many blocks have passed their last phase.
func (w *blockwise) ended() int {
	if w.gathers {
		return w.gathered
	}
	return w.crossed
}

func (w *blockwise) step() (done bool, err error) {
	ended, err := w.inside.advance()
	switch {
	case err != nil:
		return true, err
	case ended && w.gathering:
		w.gathered++
	case ended:
		w.reduced++
	}
	if ended, err = w.across.advance(); err != nil {
		return true, err
	}
	if ended {
		w.crossed++
	}
	w.startAcross()
	w.startInside()
	return w.ended() == w.blocks, nil
}

func (w *blockwise) startAcross() {
	if !w.across.idle() || w.crossed == w.reduced {
		return
	}
	w.lane.moved++
	if w.across.op = w.phases.cross(w.crossed); w.across.op == nil {
		w.crossed++
	}
}

// startInside reduces one block ahead, so the shards of two blocks are in use at a time.
func (w *blockwise) startInside() {
	if !w.inside.idle() {
		return
	}
	switch {
	case w.reduced < w.blocks && w.reduced <= w.ended()+1:
		w.lane.moved++
		w.gathering = false
		w.inside.op = w.phases.reduce(w.reduced)
	case w.gathers && w.gathered < w.crossed:
		w.lane.moved++
		w.gathering = true
		w.inside.op = w.phases.gather(w.gathered)
	}
}
