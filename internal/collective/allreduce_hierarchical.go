package collective

// allreduceHierarchical is the allreduce over several hosts in shards. The tensor
// is cut into blocks, and each block passes three phases:
//
//	reduce  a reducescatter inside the host leaves each member its shard
//	cross   the members with the same index allreduce their shards between the hosts
//	gather  an allgather inside the host
//
// Inside a host the phases run in the order reduce 0, reduce 1, gather 0, reduce
// 2, gather 1, …, the same on all of its members, while the cross phases run on
// their own, each as soon as its block is reduced. So the link between hosts waits
// for the first reduce and for nothing else. This is what Horovod calls a torus
// allreduce, and its hierarchical one for hosts with equally many ranks.
//
// A short tensor has fewer shards; with one it is a reduction at the first
// member of each host, an allreduce among those, and a broadcast.
//
// Each element is combined on each host in the order of the members, then
// between the hosts as the algorithm there does it. 16-bit floats are rounded when a host's
// sum is complete, and then as between the hosts. The last step between the hosts
// applies the scale.
//
// Steps: two synchronisations inside the host and those between the hosts, a
// block; overlapped between blocks. Bytes: a host sends and receives 2n(H-1)/H,
// the least possible; inside it each member moves about as much as in
// allreduceSharedPipelined. Memory: what the cross algorithm needs for a shard of
// a block. Chosen by allreduceForm.
type allreduceHierarchical struct {
	lane   *Lane
	todo   reduction
	shards int
	length int // of all blocks but the last
	blocks int

	inside    pass
	gathering bool // what runs inside is a gather
	across    pass
	reduced   int // blocks that have passed each phase
	crossed   int
	gathered  int
}

func (a *allreduceHierarchical) start(l *Lane, todo reduction) Op {
	n := len(todo.in)
	shards := l.hier.shardsOf(n)
	blocks, length := l.hier.blocksOf(n, shards)
	*a = allreduceHierarchical{lane: l, todo: todo, shards: shards, blocks: blocks, length: length}
	return a
}

func (a *allreduceHierarchical) Advance() (bool, error) {
	l := a.lane
	for {
		before := l.Moved()
		if err := a.step(); err != nil {
			l.end()
			return true, err
		}
		switch {
		case a.gathered == a.blocks:
			l.end()
			return true, nil
		case l.Moved() == before:
			return false, nil
		}
	}
}

// step drives what runs inside and across, and starts what can be.
func (a *allreduceHierarchical) step() error {
	ended, err := a.inside.advance()
	switch {
	case err != nil:
		return err
	case ended && a.gathering:
		a.gathered++
	case ended:
		a.reduced++
	}
	if ended, err = a.across.advance(); err != nil {
		return err
	}
	if ended {
		a.crossed++
	}
	if a.across.idle() && a.crossed < a.reduced {
		a.cross(a.crossed)
	}
	if !a.inside.idle() {
		return nil
	}
	switch {
	case a.reduced < a.blocks && a.reduced <= a.gathered+1:
		a.reduce(a.reduced)
	case a.gathered < a.crossed:
		a.gather(a.gathered)
	}
	return nil
}

// block is the range of the tensor's bytes that is block b, and the range in it
// that is this member's shard.
func (a *allreduceHierarchical) block(b int) (lo, hi, from, to int) {
	lo = b * a.length
	hi = min(lo+a.length, len(a.todo.in))
	from, to = a.lane.hier.deal(hi-lo, a.shards)
	return lo, hi, lo + from, lo + to
}

func (a *allreduceHierarchical) reduce(b int) {
	l := a.lane
	lo, hi, from, to := a.block(b)
	l.moved++
	a.gathering = false
	a.inside.op = l.hier.local.reduceShards(reduction{dt: a.todo.dt, op: a.todo.op, in: a.todo.in[lo:hi],
		out: a.todo.out[from:to], scale: 1}, l.hier.counts)
}

// reduceShards is Reducescatter for a lane inside a host. Other than there, out
// may be this member's part of in.
func (l *Lane) reduceShards(r reduction, counts []int64) Op {
	l.begin()
	if _, err := l.deal(l.offsets, counts); err != nil {
		panic(err)
	}
	if l.size == 1 {
		return l.allreduceLocal.start(l, l.whole(r))
	}
	return l.reducescatterShared.start(l, r)
}

func (a *allreduceHierarchical) cross(b int) {
	l := a.lane
	_, _, from, to := a.block(b)
	l.moved++
	if from == to { // no shard
		a.crossed++
		return
	}
	own := a.todo.out[from:to]
	a.across.op = l.hier.reduceAcross(reduction{dt: a.todo.dt, op: a.todo.op, in: own, out: own, scale: a.todo.scale,
		wire: a.todo.wire})
}

func (a *allreduceHierarchical) gather(b int) {
	l := a.lane
	lo, hi, from, to := a.block(b)
	l.moved++
	a.gathering = true
	a.inside.op = l.hier.local.Allgather(a.todo.out[from:to], a.todo.out[lo:hi], l.hier.counts)
}
