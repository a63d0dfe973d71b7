package engine

import (
	"fmt"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// inUse knows the memory of the operations that are pending on this rank, in all lanes. The other ranks and the fusion
// decide when an operation reads and writes its memory. So if two operations use the same memory and one of them writes
// it, nobody can tell the result, and the engine refuses the second one. It allows two operations of one stream
// (ofStream) and equal ones (repeats). Any number may read the same memory. Guarded by engine.mu.
type inUse struct {
	read, written extents[*Entry]
}

// extent is a range of memory, [begin, end); empty if end is 0.
type extent struct{ begin, end uintptr }

func extentOf(p []byte) extent {
	if len(p) == 0 {
		return extent{}
	}
	begin := uintptr(unsafe.Pointer(&p[0]))
	return extent{begin, begin + uintptr(len(p))}
}

// standingFor returns x. If x is a copy of the memory at original, it returns the range of as many bytes there.
func (x extent) standingFor(original uintptr) extent {
	if original == 0 || x.end == 0 {
		return x
	}
	return extent{original, original + x.end - x.begin}
}

// occupy enters en's memory, and notes which operations en has to follow. If en's memory is in use, occupy refuses en
// instead.
func (l *lane) occupy(en *Entry) {
	m := &l.engine.inUse
	out := en.op.Out
	if out == nil {
		out = en.op.Target
	}
	en.reads, en.writes = extentOf(en.op.In).standingFor(en.op.InOf), extentOf(out).standingFor(en.op.OutOf)
	if en.reads == en.writes {
		en.reads = extent{} // in place
	}
	if other, what := m.clash(en); other != nil {
		en.reads, en.writes = extent{}, extent{}
		en.follows = nil
		l.refuse(en, other, what)
		return
	}
	if en.reads.end != 0 {
		m.read.add(en.reads.begin, en.reads.end, en)
	}
	if en.writes.end != 0 {
		m.written.add(en.writes.begin, en.writes.end, en)
	}
}

// ended ends en's use of its memory, unless the caller is still to copy the result: see Op.OutOf.
func (m *inUse) ended(en *Entry) {
	if en.op.OutOf == 0 {
		m.release(en)
	}
}

// release ends en's use of its memory.
func (m *inUse) release(en *Entry) {
	if en.reads.end != 0 {
		m.read.remove(en.reads.begin, en.reads.end, en)
	}
	if en.writes.end != 0 {
		m.written.remove(en.writes.begin, en.writes.end, en)
	}
	en.reads, en.writes = extent{}, extent{}
}

// clash finds a pending operation with which en cannot share memory, and says what each of them does with the memory;
// nil if there is none. It also notes which operations en follows, and whether en must be executed alone.
func (m *inUse) clash(en *Entry) (other *Entry, what string) {
	counts := func(other *Entry) bool {
		switch {
		case ofStream(en, other):
			en.follows = append(en.follows, other)
		case repeats(en, other):
			en.request.Alone = true
		default:
			return !takeTurns(en, other)
		}
		return false
	}
	if x := en.writes; x.end != 0 {
		if other, found := m.written.find(x.begin, x.end, counts); found {
			return other, "writes memory that %s writes, too"
		}
		if other, found := m.read.find(x.begin, x.end, counts); found {
			return other, "writes memory that %s reads"
		}
	}
	if x := en.reads; x.end != 0 {
		if other, found := m.written.find(x.begin, x.end, counts); found {
			return other, "reads memory that %s writes"
		}
	}
	return nil, ""
}

// takeTurns reports whether a and b may share memory because they bring the same values: see operation.Descriptor.
func takeTurns(a, b *Entry) bool {
	return a.op.Type == b.op.Type && a.op.Type.Describe().TakesTurns && a.lane == b.lane && a.op.Root == b.op.Root
}

// repeats reports whether en is equal to other, both in place, and idempotent: see operation.Descriptor. A lane runs
// them one after the other, unless it fuses them.
func repeats(en, other *Entry) bool {
	a, b := &en.request, &other.request
	return a.Type == b.Type && a.ReduceOp == b.ReduceOp && a.Type.Describe().Idempotent.Has(a.ReduceOp) &&
		a.Prescale == 1 && b.Prescale == 1 && a.Postscale == 1 && b.Postscale == 1 && a.DType == b.DType &&
		en.lane == other.lane && en.writes == other.writes && en.reads == extent{} && other.reads == extent{}
}

// refuse makes en an operation that fails on all ranks, because it shares memory with other. The engine does not touch
// en's memory.
func (l *lane) refuse(en, other *Entry, what string) {
	advice := "Wait for that one first, or give each operation memory of its own."
	rival := describe(other) + ", which is still in progress,"
	if en.group != nil && en.group == other.group {
		rival, advice = describe(other)+", of the same group,", "Give each tensor of a group memory of its own."
	}
	l.refuseAs(en, InvalidArgument, fmt.Sprintf("it "+what+". "+advice, rival))
}

// refuseAs makes en an operation that fails on all ranks. en uses no memory. This rank gets code and why; its Request
// tells the other ranks, which would wait otherwise.
func (l *lane) refuseAs(en *Entry, code Code, why string) {
	e, kind := l.engine, describe(en)
	en.refusal = &Error{code, kind + " is refused: " + why}
	told := fmt.Sprintf("%s refuses %s: %s", e.opts.Describe(e.opts.Rank), kind, why)
	en.request.Refused = told[:min(len(told), negotiate.MaxRefused)]
	en.op.In, en.op.Out, en.op.Target, en.op.Alloc, en.op.Ready = nil, nil, nil, nil, nil
}

// describe names an operation for an error.
func describe(en *Entry) string {
	name := en.request.Name
	if len(name) > 256 {
		name = name[:256] + "…"
	}
	return fmt.Sprintf("%s of tensor %q", en.request.Type.Describe().Name, name)
}

// overlap reports whether a and b have a byte in common.
func overlap(a, b []byte) bool {
	x, y := extentOf(a), extentOf(b)
	return x.begin < y.end && y.begin < x.end
}

// userOf returns a pending operation that uses the byte at address, nil if there is none.
func (m *inUse) userOf(address uintptr) *Entry {
	all := func(*Entry) bool { return true }
	en, found := m.written.find(address, address+1, all)
	if !found {
		en, _ = m.read.find(address, address+1, all)
	}
	return en
}
