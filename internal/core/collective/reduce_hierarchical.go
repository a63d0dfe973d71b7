package collective

// reduceHierarchical is the reduction to one member over several hosts, in shards. The tensor is cut into blocks as in
// allreduceHierarchical, and each block passes three phases:
//
//	reduce  a reducescatter inside each host leaves each member its shard
//	cross   the members with the same index reduce their shards to the one on the root's host
//	gather  an allgather inside the root's host; the other hosts have nothing to do
//
// The phases of different blocks overlap, see blockwise.
//
// Each element is combined on each host in the order of the members, then in the order of the algorithm between the
// hosts. 16-bit floats are rounded when a host's sum is complete. The last step between the hosts applies the scale.
//
// Steps: a synchronisation inside each host, those between the hosts, and one inside the root's host, a block;
// overlapped between blocks. Bytes: each host but the root's sends n once. Memory: two shards of a block, and on the
// root's host a block. Chosen over several hosts, unless hierarchical algorithms are turned off.
type reduceHierarchical struct {
	blockwise
	todo     reduction
	rootHost int
	root     int // lane member
	widest   int // of the shards of a block, in bytes
}

func (a *reduceHierarchical) start(l *Lane, todo reduction, root int) Op {
	a.todo, a.root, a.rootHost = todo, root, l.hier.hostOf(root)
	a.begin(l, a, len(todo.in), l.hier.host == a.rootHost)
	a.widest = alignUp(ceilDiv(min(len(todo.in), a.length), a.shards), lineBytes)
	l.temporary(2*a.widest + a.length)
	return a
}

// shard is the range of block b, in bytes of the tensor, and the memory of this member's shard of it.
func (a *reduceHierarchical) shard(b int) (lo, hi int, shard []byte) {
	lo, hi, from, to := a.block(b, len(a.todo.in))
	return lo, hi, a.lane.scratch[b%2*a.widest:][:to-from]
}

func (a *reduceHierarchical) reduce(b int) Op {
	lo, hi, shard := a.shard(b)
	return a.lane.hier.local.reduceShards(reduction{dt: a.todo.dt, op: a.todo.op, in: a.todo.in[lo:hi], out: shard,
		scale: 1}, a.lane.hier.counts)
}

func (a *reduceHierarchical) cross(b int) Op {
	_, _, shard := a.shard(b)
	if len(shard) == 0 {
		return nil
	}
	out := shard
	if !a.gathers {
		out = nil
	}
	return a.lane.hier.cross.Reduce(a.rootHost, a.todo.dt, a.todo.op, shard, out, a.todo.scale)
}

func (a *reduceHierarchical) gather(b int) Op {
	lo, hi, shard := a.shard(b)
	out := a.lane.scratch[2*a.widest:][:hi-lo]
	if a.lane.rank == a.root {
		out = a.todo.out[lo:hi]
	}
	return a.lane.hier.local.Allgather(shard, out, a.lane.hier.counts)
}
