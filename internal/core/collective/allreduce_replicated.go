package collective

// allreduceReplicated is the allreduce of little data over several hosts that have equally many members: an allreduce
// inside each host, then one between the hosts among the members with the same index. So all members of a host do the
// same work, and the data crosses between the hosts more often than necessary. That saves the second synchronisation
// inside the host. The order of combining, and the rounding, are those of allreduceHierarchical.
//
// Steps: one synchronisation inside the host, and those between the hosts. Bytes:
// those of the algorithm between the hosts for n, times the members of a host.
// Memory: what that algorithm needs. Chosen by allreduceForm.
type allreduceReplicated struct {
	lane   *Lane
	todo   reduction
	inside pass
	across pass
}

func (a *allreduceReplicated) start(l *Lane, todo reduction) Op {
	*a = allreduceReplicated{lane: l, todo: todo}
	a.inside.op = l.hier.local.Allreduce(todo.dt, todo.op, todo.in, todo.out, 1)
	return a
}

func (a *allreduceReplicated) Advance() (bool, error) {
	l := a.lane
	ended, err := a.inside.advance()
	if ended {
		r := a.todo
		r.in = r.out
		a.across.op = l.hier.reduceAcross(r)
		l.moved++
	}
	if err == nil {
		ended, err = a.across.advance()
	}
	if ended || err != nil {
		l.end()
		return true, err
	}
	return false, nil
}
