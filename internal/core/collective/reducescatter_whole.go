package collective

import "fmt"

// reducescatterWhole is the reducescatter of deterministic lanes over hosts with unequal numbers of members: an
// allreduce in memory of its own, of which each member keeps its part. So each host's operands are combined first, as
// in the allreduce, although the hosts have no shards in common.
//
// Steps and bytes: those of allreduceHierarchical, twice the least possible. Memory: n.
type reducescatterWhole struct {
	lane   *Lane
	todo   reduction
	lo     int // where this member's part starts
	memory Buffer
	whole  []byte
	op     Op
}

// start reads the parts from l.offsets.
func (s *reducescatterWhole) start(l *Lane, todo reduction) Op {
	whole, err := s.memory.Grow(len(todo.in))
	if err != nil {
		l.end()
		return l.refuse("reducescatter: memory of %d bytes: %w", len(todo.in), err)
	}
	s.lane, s.todo, s.lo, s.whole = l, todo, l.offsets[l.rank], whole
	todo.out = whole
	s.op = l.allreduceHierarchical.start(l, todo)
	return s
}

func (s *reducescatterWhole) Advance() (bool, error) {
	done, err := s.op.Advance()
	if err != nil {
		return done, fmt.Errorf("reducescatter: %w", err)
	}
	if done {
		copy(s.todo.out, s.whole[s.lo:])
		s.todo, s.op = reduction{}, nil
	}
	return done, nil
}
