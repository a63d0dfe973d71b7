package tracemerge

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// spool keeps the operations of one process set of one rank, in their order, in a few bytes each. A small spool is in
// memory, a larger one in a temporary file without a name.
type spool struct {
	last  operation // the last operation added: the next one is written as the difference to it
	count int
	buf   []byte
	file  *os.File
	err   error // the first error
}

// mostInMemory is how many bytes a spool keeps in memory before it makes a file.
const mostInMemory = 64 << 10

// add appends an operation. It skips an operation that goes back in the order, as a damaged file may have.
func (s *spool) add(o *operation) {
	if s.err != nil || s.count > 0 && o.order <= s.last.order {
		return
	}
	flags := uint64(0)
	if o.symmetric {
		flags = 1
	}
	s.buf = binary.AppendUvarint(s.buf, o.order-s.last.order)
	s.buf = binary.AppendUvarint(s.buf, uint64(o.track)<<1|flags)
	s.buf = binary.AppendVarint(s.buf, o.agreed-s.last.agreed)
	for _, at := range []int64{o.came, o.began, o.ended} {
		if at == 0 {
			s.buf = append(s.buf, 0)
			continue
		}
		// A difference from 0 on is written as one more, so that 0 can mean that there is no time.
		d := at - o.agreed
		if d >= 0 {
			d++
		}
		s.buf = binary.AppendVarint(s.buf, d)
	}
	s.last, s.count = *o, s.count+1
	if len(s.buf) < mostInMemory {
		return
	}
	if s.file == nil {
		if s.file, s.err = os.CreateTemp("", "gorovod-trace-*"); s.err != nil {
			return
		}
		os.Remove(s.file.Name())
	}
	_, s.err = s.file.Write(s.buf)
	s.buf = s.buf[:0]
}

// operations reads the spool from its beginning. Add nothing afterwards.
func (s *spool) operations() *operations {
	var in io.Reader = bytes.NewReader(s.buf)
	if s.file != nil {
		in = io.MultiReader(io.NewSectionReader(s.file, 0, 1<<62), in)
	}
	return &operations{in: bufio.NewReaderSize(in, 16<<10), left: s.count}
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// operations reads a spool.
type operations struct {
	in   *bufio.Reader
	left int
	operation
}

// next reads the next operation. It returns false at the end.
func (o *operations) next() (bool, error) {
	if o.left == 0 {
		return false, nil
	}
	o.left--
	order, err := binary.ReadUvarint(o.in)
	if err != nil {
		return false, err
	}
	track, err := binary.ReadUvarint(o.in)
	if err != nil {
		return false, err
	}
	agreed, err := binary.ReadVarint(o.in)
	if err != nil {
		return false, err
	}
	o.order += order
	o.agreed += agreed
	o.track, o.symmetric = int(track>>1), track&1 == 1
	for _, at := range []*int64{&o.came, &o.began, &o.ended} {
		d, err := binary.ReadVarint(o.in)
		switch {
		case err != nil:
			return false, err
		case d == 0:
			*at = 0
		case d > 0:
			*at = o.agreed + d - 1
		default:
			*at = o.agreed + d
		}
	}
	return true, nil
}

// join calls f for each operation of a process set, in their order. ops has each rank's record of the operation; nil if
// the rank has none. f must not keep ops.
func join(world []*Rank, set int, f func(ops []*operation)) error {
	heads := make([]*operations, len(world))
	for i, r := range world {
		s := r.spools[set]
		if s == nil {
			continue
		}
		heads[i] = s.operations()
		if err := advance(heads, i); err != nil {
			return err
		}
	}
	ops := make([]*operation, len(world))
	for {
		var order uint64
		for _, h := range heads {
			if h != nil && (order == 0 || h.order < order) {
				order = h.order
			}
		}
		if order == 0 {
			return nil
		}
		for i, h := range heads {
			ops[i] = nil
			if h != nil && h.order == order {
				ops[i] = &h.operation
			}
		}
		f(ops)
		for i := range heads {
			if ops[i] != nil {
				if err := advance(heads, i); err != nil {
					return err
				}
			}
		}
	}
}

// advance reads the next operation of a head, or takes the head away.
func advance(heads []*operations, i int) error {
	more, err := heads[i].next()
	if !more {
		heads[i] = nil
	}
	return err
}

// sets are the process sets of a world.
func sets(world []*Rank) map[int]bool {
	all := map[int]bool{}
	for _, r := range world {
		for set := range r.spools {
			all[set] = true
		}
	}
	return all
}
