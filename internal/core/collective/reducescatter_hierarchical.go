package collective

// reducescatterHierarchical is the reducescatter over several hosts that have
// equally many members. Every member's part is cut into the same number of
// slices, and band k is slice k of every part. Each band passes two phases:
//
//	inside  the band's slices are laid out so that those of the members with one
//	        index stand together, and a reducescatter gives them to the member with
//	        that index on this host
//	across  the members with the same index make a reducescatter of their results
//
// A band is reduced inside while the one before it crosses. The order of combining
// and the rounding are those of allreduceHierarchical.
//
// Steps: a synchronisation inside the host and those between the hosts, a band;
// overlapped between bands. Bytes: a host sends and receives n(H-1)/H, the least
// possible; each member copies n once more than in reducescatterShared. Memory:
// two bands. Chosen for equal hosts.
type reducescatterHierarchical struct {
	lane   *Lane
	todo   reduction
	starts []int // size+1 entries, kept: where the parts start in the input
	bands  int
	limit  int // of a band's length
	inside pass
	across pass
}

// start reads the parts from l.offsets.
func (s *reducescatterHierarchical) start(l *Lane, todo reduction) Op {
	limit := l.hier.block * l.hier.shards
	bands := l.slices(limit)
	starts := append(s.starts[:0], l.offsets...)
	*s = reducescatterHierarchical{lane: l, todo: todo, starts: starts, bands: bands, limit: limit}
	return s
}

func (s *reducescatterHierarchical) Advance() (bool, error) { return s.lane.drive(s) }

func (s *reducescatterHierarchical) step() (done bool, err error) {
	if _, err := s.inside.advance(); err != nil {
		return true, err
	}
	if _, err := s.across.advance(); err != nil {
		return true, err
	}
	if s.across.idle() && s.across.done < s.inside.done {
		s.cross(s.across.done)
	}
	if s.inside.idle() && s.inside.done < min(s.bands, s.across.done+2) {
		s.reduce(s.inside.done)
	}
	return s.across.done == s.bands, nil
}

// slice is the range of slice k of member m's part, in bytes of the input.
func (s *reducescatterHierarchical) slice(m, k int) (lo, hi int) {
	length := s.starts[m+1] - s.starts[m]
	width := sliceWidth(length, s.bands)
	lo, hi = min(k*width, length), min((k+1)*width, length)
	return s.starts[m] + lo, s.starts[m] + hi
}

// band sets h.counts and h.parts for band k. It returns the band's memory, and the range in it that the members with
// this index get.
func (s *reducescatterHierarchical) band(k int) (memory []byte, from, to int) {
	h := s.lane.hier
	at := 0
	for i := range h.counts {
		if i == h.index {
			from = at
		}
		h.counts[i] = 0
		for host, members := range h.hosts {
			lo, hi := s.slice(members[i], k)
			h.counts[i] += int64(hi - lo)
			if i == h.index {
				h.parts[host] = int64(hi - lo)
			}
		}
		at += int(h.counts[i])
		if i == h.index {
			to = at
		}
	}
	return s.lane.temporary(2 * s.limit)[k%2*s.limit:][:at], from, to
}

func (s *reducescatterHierarchical) reduce(k int) {
	l, h := s.lane, s.lane.hier
	l.moved++
	memory, from, to := s.band(k)
	at := 0
	for i := range h.counts {
		for _, members := range h.hosts {
			lo, hi := s.slice(members[i], k)
			at += copy(memory[at:], s.todo.in[lo:hi])
		}
	}
	s.inside.op = h.local.reduceShards(reduction{dt: s.todo.dt, op: s.todo.op, in: memory, out: memory[from:to],
		scale: 1}, h.counts)
}

func (s *reducescatterHierarchical) cross(k int) {
	l, h := s.lane, s.lane.hier
	l.moved++
	memory, from, to := s.band(k)
	lo, hi := s.slice(l.rank, k)
	out := s.todo.out[lo-s.starts[l.rank] : hi-s.starts[l.rank]]
	s.across.op = h.cross.Reducescatter(s.todo.dt, s.todo.op, memory[from:to], out, h.parts, s.todo.scale)
}
