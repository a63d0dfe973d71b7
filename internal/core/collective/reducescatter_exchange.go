package collective

import "github.com/gorovod/gorovod/internal/core/reduce"

// reducescatterExchange is the reducescatter of small data over Comm: each member sends every other one its part, and
// reduces the received data in the order of the ranks, as over Shared.
//
// Steps: those of alltoallPairwise. Bytes: each member sends n less its own part,
// and receives and reduces its part size-1 times. Memory: size times its part.
// Chosen where that is little for the member with the longest part.
type reducescatterExchange struct {
	lane     *Lane
	todo     reduction
	received []byte // every member's contribution to this member's part
	exchange Op
}

// start reads the parts from counts.
func (s *reducescatterExchange) start(l *Lane, todo reduction, counts []int64) Op {
	for m := range l.each {
		l.each[m] = counts[l.rank]
	}
	received := l.temporary(l.size * len(todo.out))
	*s = reducescatterExchange{lane: l, todo: todo, received: received}
	s.exchange = l.Alltoall(todo.in, counts, received, l.each)
	return s
}

func (s *reducescatterExchange) Advance() (bool, error) {
	if done, err := s.exchange.Advance(); !done || err != nil {
		return done, err
	}
	l, n := s.lane, len(s.todo.out)
	for m := range l.srcs {
		l.srcs[m] = s.received[m*n:][:n]
	}
	reduce.Reduce(s.todo.dt, s.todo.op, s.todo.out, l.srcs, s.todo.scale)
	l.moved++
	return true, nil
}
