package collective

// allreduceHierarchical is the allreduce over several hosts in shards. The tensor is cut into blocks. Each block passes
// three phases:
//
//	reduce  a reducescatter inside the host leaves each member its shard
//	cross   the members with the same index allreduce their shards between the hosts
//	gather  an allgather inside the host
//
// The phases of different blocks overlap, see blockwise. Horovod calls this a torus
// allreduce, and for hosts with equally many ranks a hierarchical one.
//
// A short tensor has fewer shards; with one it is a reduction at the first
// member of each host, an allreduce among those, and a broadcast.
//
// Each element is combined on each host in the order of the members, then in the order of the algorithm between the
// hosts. 16-bit floats are rounded when a host's sum is complete, and then as that algorithm rounds them. The last step
// between the hosts applies the scale.
//
// Steps: two synchronisations inside the host and those between the hosts, a
// block; overlapped between blocks. Bytes: a host sends and receives 2n(H-1)/H,
// the least possible; inside it each member moves about as much as in
// allreduceSharedPipelined. Memory: what the cross algorithm needs for a shard of
// a block. Chosen by allreduceForm.
type allreduceHierarchical struct {
	blockwise
	todo reduction
}

func (a *allreduceHierarchical) start(l *Lane, todo reduction) Op {
	a.todo = todo
	a.begin(l, a, len(todo.in), true)
	return a
}

func (a *allreduceHierarchical) reduce(b int) Op {
	lo, hi, from, to := a.block(b, len(a.todo.in))
	return a.lane.hier.local.reduceShards(reduction{dt: a.todo.dt, op: a.todo.op, in: a.todo.in[lo:hi],
		out: a.todo.out[from:to], scale: 1}, a.lane.hier.counts)
}

func (a *allreduceHierarchical) cross(b int) Op {
	_, _, from, to := a.block(b, len(a.todo.in))
	if from == to {
		return nil
	}
	own, kept := a.todo.out[from:to], a.todo.kept
	if kept != nil {
		kept = kept[from:to]
	}
	return a.lane.hier.reduceAcross(reduction{dt: a.todo.dt, op: a.todo.op, in: own, out: own, scale: a.todo.scale,
		wire: a.todo.wire, kept: kept})
}

func (a *allreduceHierarchical) gather(b int) Op {
	lo, hi, from, to := a.block(b, len(a.todo.in))
	return a.lane.hier.local.Allgather(a.todo.out[from:to], a.todo.out[lo:hi], a.lane.hier.counts)
}
