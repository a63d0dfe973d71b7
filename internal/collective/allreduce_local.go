package collective

import "github.com/gorovod/gorovod/internal/reduce"

// allreduceLocal is the allreduce of a single member: its input, scaled.
//
// Steps: none. Bytes: none beyond the input and the output. Chosen for size 1.
type allreduceLocal struct {
	lane *Lane
	todo reduction
}

func (a *allreduceLocal) start(l *Lane, r reduction) Op {
	*a = allreduceLocal{lane: l, todo: r}
	return a
}

func (a *allreduceLocal) Advance() (bool, error) {
	srcs := a.lane.srcs[:1]
	srcs[0] = a.todo.in
	reduce.Reduce(a.todo.dt, a.todo.op, a.todo.out, srcs, a.todo.scale)
	a.lane.end()
	return true, nil
}
