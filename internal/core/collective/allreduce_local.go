package collective

import "github.com/gorovod/gorovod/internal/core/reduce"

// allreduceLocal is the allreduce of a single member: its input, scaled.
//
// Steps: none. Bytes: none beyond the input and the output. Chosen for size 1.
type allreduceLocal struct {
	lane *Lane
	todo layout
}

func (a *allreduceLocal) start(l *Lane, s layout) Op {
	*a = allreduceLocal{lane: l, todo: s}
	return a
}

func (a *allreduceLocal) Advance() (bool, error) {
	s := &a.todo
	srcs := a.lane.srcs[:1]
	for i := range s.parts {
		p := &s.parts[i]
		if p.Out == nil {
			continue // nobody wants it
		}
		if err := a.lane.inspectRange(i, p.In, 0, len(p.In)); err != nil {
			return false, err
		}
		srcs[0] = p.In
		switch {
		case p.In == nil:
			clear(p.Out)
			srcs[0] = p.Out
		case s.prescale != 1:
			reduce.Scale(s.dt, p.Out, p.In, s.prescale)
			srcs[0] = p.Out
		}
		reduce.Reduce(s.dt, s.op, p.Out, srcs, s.postscale)
	}
	a.lane.end()
	return true, nil
}
