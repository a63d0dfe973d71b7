package collective

// reduceHierarchical is the reduction to one member over several hosts, in shards. The tensor is cut into blocks as in
// allreduceHierarchical, and each block passes three phases:
//
//	reduce  a reducescatter inside each host leaves each member its shard
//	cross   the members with the same index reduce their shards to the one on the root's host
//	gather  an allgather inside the root's host; the other hosts have nothing to do
//
// Inside a host the phases run in the order reduce 0, reduce 1, gather 0, reduce 2, …, the same on all of its members.
//
// Each element is combined on each host in the order of the members, then between the hosts as the algorithm there does
// it. 16-bit floats are rounded when a host's sum is complete. The last step between the hosts applies the scale.
//
// Steps: a synchronisation inside each host, those between the hosts, and one inside the root's host, a block;
// overlapped between blocks. Bytes: each host but the root's sends n once. Memory: two shards of a block, and on the
// root's host a block. Chosen over several hosts, unless hierarchical algorithms are turned off.
type reduceHierarchical struct {
	lane     *Lane
	todo     reduction
	rootHost int
	root     int // lane member
	shards   int
	length   int // of all blocks but the last
	blocks   int
	widest   int // of the shards of a block

	inside    pass
	gathering bool // what runs inside is a gather
	across    pass
	reduced   int // blocks that have passed each phase
	crossed   int
	gathered  int
}

func (a *reduceHierarchical) start(l *Lane, todo reduction, root int) Op {
	n := len(todo.in)
	shards := l.hier.shardsOf(n)
	blocks, length := l.hier.blocksOf(n, shards)
	*a = reduceHierarchical{lane: l, todo: todo, root: root, shards: shards, blocks: blocks, length: length}
	for host, members := range l.hier.hosts {
		for _, m := range members {
			if m == root {
				a.rootHost = host
			}
		}
	}
	a.widest = alignUp(ceilDiv(min(n, length), shards), lineBytes)
	l.temporary(2*a.widest + length)
	return a
}

func (a *reduceHierarchical) Advance() (bool, error) {
	l := a.lane
	for {
		before := l.Moved()
		if err := a.step(); err != nil {
			l.end()
			return true, err
		}
		switch {
		case a.crossed == a.blocks && (a.gathered == a.blocks || !a.home()):
			l.end()
			return true, nil
		case l.Moved() == before:
			return false, nil
		}
	}
}

// home reports that this member is on the root's host.
func (a *reduceHierarchical) home() bool { return a.lane.hier.host == a.rootHost }

// step drives what runs inside and across, and starts what can be.
func (a *reduceHierarchical) step() error {
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
	case a.reduced < a.blocks && (a.reduced <= a.gathered+1 || !a.home()):
		if a.reduced <= a.crossed+1 { // its shard has memory
			a.reduce(a.reduced)
		}
	case a.home() && a.gathered < a.crossed:
		a.gather(a.gathered)
	}
	return nil
}

// block is the range of the tensor's bytes that is block b, and the memory of this member's shard of it.
func (a *reduceHierarchical) block(b int) (lo, hi int, shard []byte) {
	lo = b * a.length
	hi = min(lo+a.length, len(a.todo.in))
	from, to := a.lane.hier.deal(hi-lo, a.shards)
	return lo, hi, a.lane.scratch[b%2*a.widest:][:to-from]
}

func (a *reduceHierarchical) reduce(b int) {
	l := a.lane
	lo, hi, shard := a.block(b)
	l.moved++
	a.gathering = false
	a.inside.op = l.hier.local.reduceShards(reduction{dt: a.todo.dt, op: a.todo.op, in: a.todo.in[lo:hi], out: shard,
		scale: 1}, l.hier.counts)
}

func (a *reduceHierarchical) cross(b int) {
	l := a.lane
	_, _, shard := a.block(b)
	l.moved++
	if len(shard) == 0 {
		a.crossed++
		return
	}
	out := shard
	if !a.home() {
		out = nil
	}
	a.across.op = l.hier.cross.Reduce(a.rootHost, a.todo.dt, a.todo.op, shard, out, a.todo.scale)
}

func (a *reduceHierarchical) gather(b int) {
	l := a.lane
	lo, hi, shard := a.block(b)
	l.moved++
	a.gathering = true
	out := l.scratch[2*a.widest:][:hi-lo]
	if l.rank == a.root {
		out = a.todo.out[lo:hi]
	}
	a.inside.op = l.hier.local.Allgather(shard, out, l.hier.counts)
}
