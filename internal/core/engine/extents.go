package engine

import "slices"

// extentsInChunk is the most ranges in one chunk. An insertion moves at most that many.
const extentsInChunk = 64

// extents holds ranges of addresses, each with its owner, and finds one that overlaps with a given range. Ranges may
// overlap, and may be equal. The engine asks at every submission, so extents is made for the cache, and allocates only
// while it grows. It is a list of chunks, ordered by the first range's beginning. The zero value is empty. It has no
// lock of its own.
type extents[T comparable] struct {
	first  []uintptr // of each chunk: where its first range begins
	last   []uintptr // of each chunk: the greatest end of a range
	chunks []*extentChunk[T]
	spare  []*extentChunk[T]
}

// extentChunk holds n ranges [begin, end), ordered by begin. Only the sole chunk of an extents may be empty.
type extentChunk[T comparable] struct {
	n          int
	begin, end [extentsInChunk]uintptr
	owner      [extentsInChunk]T
}

// add enters [begin, end), which is not empty.
func (s *extents[T]) add(begin, end uintptr, owner T) {
	if len(s.chunks) == 0 {
		s.insert(0, s.unused())
	}
	i := s.before(begin)
	if s.chunks[i].n == extentsInChunk {
		s.split(i)
		i = s.before(begin)
	}
	c := s.chunks[i]
	at := c.after(begin)
	copy(c.begin[at+1:], c.begin[at:c.n])
	copy(c.end[at+1:], c.end[at:c.n])
	copy(c.owner[at+1:], c.owner[at:c.n])
	c.begin[at], c.end[at], c.owner[at] = begin, end, owner
	c.n++
	s.first[i] = c.begin[0]
	s.last[i] = max(s.last[i], end)
}

// remove takes out a range that add has entered with the same arguments.
func (s *extents[T]) remove(begin, end uintptr, owner T) {
	for i := s.before(begin); i >= 0; i-- { // several chunks, where many begin there
		c := s.chunks[i]
		for at := c.after(begin) - 1; at >= 0 && c.begin[at] >= begin; at-- {
			if c.begin[at] == begin && c.end[at] == end && c.owner[at] == owner {
				s.removeAt(i, at)
				return
			}
		}
	}
	panic("extents: what is removed is not in the set")
}

// find returns the owner of a range that overlaps [begin, end), the first for which counts returns true.
func (s *extents[T]) find(begin, end uintptr, counts func(T) bool) (owner T, found bool) {
	for i, first := range s.first {
		if first >= end {
			break
		}
		if s.last[i] <= begin {
			continue
		}
		c := s.chunks[i]
		for at := 0; at < c.n && c.begin[at] < end; at++ {
			if c.end[at] > begin && counts(c.owner[at]) {
				return c.owner[at], true
			}
		}
	}
	return owner, false
}

// empty reports whether nothing is in the set.
func (s *extents[T]) empty() bool { return len(s.chunks) == 0 || s.chunks[0].n == 0 }

// before is the last chunk whose first range begins at begin or before; 0 if there is none.
func (s *extents[T]) before(begin uintptr) int {
	low, high := 0, len(s.first)
	for low < high {
		if middle := (low + high) / 2; s.first[middle] <= begin {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return max(0, low-1)
}

// after is the first range that begins after begin.
func (c *extentChunk[T]) after(begin uintptr) int {
	low, high := 0, c.n
	for low < high {
		if middle := (low + high) / 2; c.begin[middle] <= begin {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// removeAt takes range at of chunk i out.
func (s *extents[T]) removeAt(i, at int) {
	c := s.chunks[i]
	end := c.end[at]
	copy(c.begin[at:], c.begin[at+1:c.n])
	copy(c.end[at:], c.end[at+1:c.n])
	copy(c.owner[at:], c.owner[at+1:c.n])
	c.n--
	var none T
	c.owner[c.n] = none
	if c.n == 0 && len(s.chunks) == 1 {
		s.last[0] = 0
		return
	}
	if c.n == 0 {
		s.spare = append(s.spare, c)
		s.first, s.last, s.chunks = slices.Delete(s.first, i, i+1), slices.Delete(s.last, i, i+1),
			slices.Delete(s.chunks, i, i+1)
		return
	}
	s.first[i] = c.begin[0]
	if end == s.last[i] {
		s.last[i] = slices.Max(c.end[:c.n])
	}
}

// split moves the second half of chunk i, which is full, to a new one.
func (s *extents[T]) split(i int) {
	const half = extentsInChunk / 2
	c, d := s.chunks[i], s.unused()
	copy(d.begin[:], c.begin[half:])
	copy(d.end[:], c.end[half:])
	copy(d.owner[:], c.owner[half:])
	clear(c.owner[half:])
	c.n, d.n = half, half
	s.insert(i+1, d)
	s.first[i+1] = d.begin[0]
	s.last[i], s.last[i+1] = slices.Max(c.end[:half]), slices.Max(d.end[:half])
}

// insert makes c the chunk i; the caller sets its first and last.
func (s *extents[T]) insert(i int, c *extentChunk[T]) {
	s.first, s.last, s.chunks = slices.Insert(s.first, i, 0), slices.Insert(s.last, i, 0), slices.Insert(s.chunks, i, c)
}

func (s *extents[T]) unused() *extentChunk[T] {
	n := len(s.spare)
	if n == 0 {
		return new(extentChunk[T])
	}
	c := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return c
}
