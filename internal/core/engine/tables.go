package engine

import (
	"hash/fnv"
	"maps"
	"slices"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// A process set has sparse tables. Each member has the rows of the slots that it owns, and serves them to the others,
// also after it has joined. All members add a table before any of them uses it. A table ends with its process set, or
// with the engine.

// Table is this rank's part of a sparse table of a process set. Its methods are safe on any goroutine.
type Table struct {
	*table.Table
	engine *Engine
	set    int
	owners *slots.Map
	number int
	names  [2]string // of Pull and of Push
}

// NewTable adds a table to a process set. All members call it with equal options, and it blocks until they have. If
// they differ, or one of them refuses its own, it is an error on all. The engine closes the table at its end.
func (e *Engine) NewTable(set int, o table.Options) (*Table, *Error) {
	l, failed := e.lane(&Op{Set: set, Type: operation.Pull})
	if failed != nil {
		return nil, failed
	}
	refused := l.refusesTable(&o)
	own := proposal{Options: o}
	if refused != nil {
		own = proposal{Refused: refused.Reason}
	}
	all, failed := gather(l, "table."+o.Name, own)
	switch {
	case refused != nil:
		return nil, refused
	case failed != nil:
		return nil, failed
	}
	for m := range all {
		if its := &all[m]; its.Refused != "" {
			return nil, errorf(PreconditionError, "%s refuses %s", e.opts.Describe(l.members[m]), its.Refused)
		} else if what, first, other := all[0].Options.Difference(&its.Options); what != "" {
			return nil, errorf(PreconditionError, "table %q: Mismatched %s: rank %d has %v, rank %d has %v.", o.Name,
				what, l.members[0], first, l.members[m], other)
		}
	}
	t := &Table{Table: table.New(o), engine: e, set: set, owners: slots.Assign(len(l.members)),
		number: tableNumber(o.Name), names: [2]string{"pull." + o.Name, "push." + o.Name}}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.failure.Load(); f != nil {
		return nil, f
	}
	if l.removed {
		return nil, &Error{Aborted, "Process set has been removed"}
	}
	if l.tables == nil {
		l.tables = make(map[int]*table.Table)
	}
	l.tables[t.number] = t.Table
	l.uses = append(l.uses, &tableUse{number: t.number, table: t.Table})
	return t, nil
}

// tableNumber is the number of the table that has a name: the same on all ranks, without a message.
func tableNumber(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() >> 1)
}

// refusesTable says why the lane cannot have another table with these options, if it cannot.
func (l *lane) refusesTable(o *table.Options) *Error {
	if err := o.Check(); err != nil {
		return errorf(InvalidArgument, "table %q: %v.", o.Name, err)
	}
	switch t := l.tableOf(tableNumber(o.Name)); {
	case t == nil:
		return nil
	case t.Options().Name == o.Name:
		return errorf(InvalidArgument, "table %q: the process set has a table of this name already.", o.Name)
	default:
		return errorf(InvalidArgument, "table %q: the process set has a table %q, whose number is the same; choose "+
			"another name.", o.Name, t.Options().Name)
	}
}

// proposal is what a member says of a new table.
type proposal struct {
	Options table.Options
	Refused string // why the member does not want it; empty: it does
}

// Fill makes a lookup of a batch's keys: see table.Lookup.Fill.
func (t *Table) Fill(l *table.Lookup, keys []int64, padding table.Padding) error {
	t.NoteLookups(keys, padding)
	return l.Fill(t.Options(), t.owners, keys, padding)
}

// Pull describes the operation that writes the rows of l's keys to out. If looks is set, the table makes no rows for
// them. The operation is named for the table, so a rank has one of each kind at a time. Leave l and out alone until it
// has ended.
func (t *Table) Pull(l *table.Lookup, out []float32, looks bool) Op {
	op := t.op(operation.Pull, t.names[0], l)
	op.Out, op.Looks = memory(out), looks
	return op
}

// Push describes the operation that changes the rows of l's keys by their gradients, with a learning rate. Leave l and
// gradients alone until it has ended.
func (t *Table) Push(l *table.Lookup, gradients []float32, rate float32) Op {
	op := t.op(operation.Push, t.names[1], l)
	op.In, op.Rate = memory(gradients), rate
	return op
}

func (t *Table) op(kind operation.Kind, name string, l *table.Lookup) Op {
	l.Shape = [2]int64{int64(len(l.Keys)), int64(t.Options().Dim)}
	return Op{Type: kind, DType: tensor.Float32, Name: name, Set: t.set, Root: t.number, Keys: l.Keys, Splits: l.Counts,
		Shape: l.Shape[:], Prescale: 1, Postscale: 1}
}

// Number is the table's own in its process set: the same on all ranks, and in each job.
func (t *Table) Number() int { return t.number }

// Engine is the engine whose process set has the table.
func (t *Table) Engine() *Engine { return t.engine }

// memory is numbers as memory.
func memory(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// tableOf is the table with a number, nil for none.
func (l *lane) tableOf(number int) *table.Table {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	return l.tables[number]
}

func (l *lane) freeTables() {
	l.engine.mu.Lock()
	tables := slices.Collect(maps.Values(l.tables))
	l.engine.mu.Unlock()
	for _, t := range tables {
		t.Close()
	}
	if l.sparse != nil {
		l.sparse.free()
	}
}

// checkKeys validates a Pull or Push.
func (l *lane) checkKeys(d *operation.Descriptor, op *Op) *Error {
	invalid := func(format string, args ...any) *Error {
		return errorf(InvalidArgument, "%s %q: "+format, append([]any{d.Name, op.Name}, args...)...)
	}
	if op.Refused != "" {
		return invalid("%s", op.Refused)
	}
	t := l.tableOf(op.Root)
	if t == nil {
		return invalid("the process set has no table of number %d", op.Root)
	}
	if dim := t.Options().Dim; len(op.Shape) != 2 || op.Shape[0] != int64(len(op.Keys)) || op.Shape[1] != int64(dim) {
		return invalid("shape %v for %d keys of table %q, whose rows have %d numbers", op.Shape, len(op.Keys),
			t.Options().Name, dim)
	}
	sum := int64(0)
	for _, n := range op.Splits {
		if n < 0 {
			return invalid("a member owns %d keys", n)
		}
		sum += int64(n)
	}
	if len(op.Splits) != len(l.members) || sum != int64(len(op.Keys)) {
		return invalid("%d members own %d keys; there are %d members and %d keys", len(op.Splits), sum, len(l.members),
			len(op.Keys))
	}
	memory, what := op.Out, "output"
	if op.Type == operation.Push {
		memory, what = op.In, "input"
	}
	if n := op.Shape[0] * rowBytes(op.Shape, op.DType); int64(len(memory)) != n {
		return invalid("%d bytes of %s for %d keys, which need %d", len(memory), what, len(op.Keys), n)
	}
	return nil
}
