package hvd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/table"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// Optimizer says how a gradient changes a row of a [Table]. The functions that make one give its numbers their usual
// values; you may change them.
type Optimizer struct {
	name table.Optimizer
	// Rate is the learning rate, until Table.SetRate.
	Rate float32
	// Epsilon keeps the optimizers of Adagrad and Adam from a division by 0.
	Epsilon float32
	// InitialAccumulator is what the sum of squares of Adagrad and RowwiseAdagrad begins with.
	InitialAccumulator float32
	Beta1, Beta2       float32 // Adam's decay of the mean of gradients, and of that of their squares
	Beta, L1, L2       float32 // FTRL's
}

// SGD subtracts the gradient times the rate.
func SGD(rate float32) Optimizer { return optimizer(table.SGD, rate) }

// Adagrad divides each weight's step by the root of the sum of its squared gradients so far.
func Adagrad(rate float32) Optimizer { return optimizer(table.Adagrad, rate) }

// RowwiseAdagrad is Adagrad with one sum for a row, of the means of its squared gradients. It needs 4 bytes a row.
func RowwiseAdagrad(rate float32) Optimizer { return optimizer(table.RowwiseAdagrad, rate) }

// Adam is Adam (arXiv:1412.6980) for the rows that have a gradient, as torch.optim.SparseAdam has it.
func Adam(rate float32) Optimizer { return optimizer(table.Adam, rate) }

// FTRL is FTRL-Proximal (McMahan et al., 2013), without regularisation unless you set L1 or L2.
func FTRL(rate float32) Optimizer { return optimizer(table.FTRL, rate) }

// optimizer has the usual numbers.
func optimizer(name table.Optimizer, rate float32) Optimizer {
	o := table.Options{Optimizer: name, Rate: rate, Epsilon: -1, InitialAccumulator: -1, Beta1: -1, Beta2: -1, Beta: -1,
		L1: -1, L2: -1}
	o.Complete()
	return Optimizer{name, rate, o.Epsilon, o.InitialAccumulator, o.Beta1, o.Beta2, o.Beta, o.L1, o.L2}
}

// TableOptions describe a [Table]. They must be the same on all processes that have it.
type TableOptions struct {
	Name string
	Dim  int // the numbers of a row
	// Keys, if not 0, says that only the keys from 0 to Keys-1 are possible. Otherwise every int64 is a key.
	Keys int64
	// A new row has normal random numbers with the standard deviation Deviation, or 1/√Dim if that is 0. They depend on
	// Seed, Name and the key alone: not on the number of processes. With Zeros it has zeros.
	Seed      uint64
	Deviation float32
	Zeros     bool
	Optimizer Optimizer
	// AdmitAfter, if above 1, is the number of the pull with which a key gets its row. Until then the key reads as
	// zeros, and its gradients are dropped. Here and below, a pull counts once, however many processes ask for the key.
	AdmitAfter uint32
	// EvictIdle, if not 0, is for how many pushes a row stays that no process pulls or changes; then it is evicted, a
	// little later. Rows with EvictKeep pulls or more stay all the same, unless EvictKeep is 0.
	EvictIdle, EvictKeep uint32
	// MaxRows, if not 0, is about how many rows all processes keep together: those that were used last. The least is
	// 65,536.
	MaxRows int64
	// Set is the process set whose members have the table; nil means all processes.
	Set *ProcessSet
}

// Table is a sparse table: rows of float32 under int64 keys, such as the embeddings of users, of which no machine could
// hold all. Each process of the table's set has the rows of its share of the keys. A row is made when a process first
// pulls it.
//
// Pull and Push are collectives: all processes of the set call them equally often, each with keys of its own. A process
// that has joined goes on serving its rows. Calls for one table run one after the other. All processes must make them
// in the same order; then the rows have the same bits in each run with as many processes. A table ends with its process
// set, or with Shutdown.
type Table struct {
	part   *engine.Table
	number int64 // of this process: each table has its own

	mu   sync.Mutex // held by the call that uses the fields below
	rate float32
	call *tableCall
}

// tableCall is the memory of a Pull or Push. An operation that goes on after its context has ended keeps it.
type tableCall struct {
	lookup table.Lookup
	rows   []float32 // of the distinct keys
	op     engine.Op
}

// NewTable makes a table. All processes of its set call it with equal options, and it blocks until they have. If the
// options differ, the error on all of them is ErrMismatch, and names the option, the ranks and both values.
func NewTable(o TableOptions) (*Table, error) {
	set := 0
	if o.Set != nil {
		id, err := o.Set.registered()
		if err != nil {
			return nil, fmt.Errorf("table %q: %w", o.Name, err)
		}
		set = id
	}
	w := process.World()
	if w == nil {
		return nil, fmt.Errorf("table %q: %w", o.Name, ErrNotInitialized)
	}
	p := o.Optimizer
	all := table.Options{Name: o.Name, Dim: o.Dim, Keys: o.Keys, Seed: o.Seed, Init: table.Normal, Scale: o.Deviation,
		Optimizer: p.name, Rate: p.Rate, Epsilon: p.Epsilon, InitialAccumulator: p.InitialAccumulator, Beta1: p.Beta1,
		Beta2: p.Beta2, Beta: p.Beta, L1: p.L1, L2: p.L2, Admit: o.AdmitAfter, Idle: o.EvictIdle, Keep: o.EvictKeep,
		Rows: o.MaxRows}
	switch {
	case o.Zeros:
		all.Init, all.Scale = table.Zeros, 0
	case o.Deviation == 0:
		all.Scale = -1
		all.Complete()
	}
	part, failure := w.Engine.NewTable(set, all)
	if failure != nil {
		return nil, wrap(failure)
	}
	return &Table{part: part, number: tablesMade.Add(1), rate: p.Rate, call: new(tableCall)}, nil
}

// tablesMade counts the tables of this process.
var tablesMade atomic.Int64

// SetRate sets the learning rate of later calls of Push. All processes must use the same: otherwise the error of Push
// is ErrMismatch.
func (t *Table) SetRate(rate float32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = rate
}

// Pull writes the rows of keys to out, one after the other: out has Dim numbers for each of them. Keys may repeat. It
// blocks as Allreduce does. If a key is out of range, the error is ErrInvalidArgument on this process, and ErrMismatch
// on the others.
func (t *Table) Pull(ctx context.Context, keys []int64, out []float32) error {
	return t.use(ctx, operation.Pull, TableBatch{t, keys, out})
}

// Push changes the rows of keys by their gradients, as the table's optimizer does. gradients has Dim numbers for each
// of keys. Gradients of equal keys are added: first those of one process, then those of the processes in the order of
// their ranks. It blocks as Allreduce does.
func (t *Table) Push(ctx context.Context, keys []int64, gradients []float32) error {
	return t.use(ctx, operation.Push, TableBatch{t, keys, gradients})
}

// Len is how many rows this process has.
func (t *Table) Len() int { return t.part.Len() }

// All calls f for each row of this process until f returns false. The order does not depend on how the rows were made.
// If the table is changed meanwhile, some rows may be those before the change, and others those after it. weights is
// valid during the call.
func (t *Table) All(f func(key int64, weights []float32) bool) {
	t.part.All(func(r *table.Row) bool { return f(r.Key, r.Weights) })
}

// TableBatch is what PullTables and PushTables do to one table.
type TableBatch struct {
	Table *Table
	Keys  []int64
	// Rows has Table's Dim numbers for each of Keys: the rows, or the gradients.
	Rows []float32
}

// PullTables is Table.Pull for several tables of one process set, with one exchange of keys and one of rows for all.
// All processes give the same tables in the same order.
func PullTables(ctx context.Context, batches ...TableBatch) error {
	return useTables(ctx, operation.Pull, batches)
}

// PushTables is Table.Push for several tables of one process set, with one exchange for all. All processes give the
// same tables in the same order.
func PushTables(ctx context.Context, batches ...TableBatch) error {
	return useTables(ctx, operation.Push, batches)
}

// use does a Pull or Push of one table.
func (t *Table) use(ctx context.Context, kind operation.Kind, b TableBatch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.call
	if c.op = b.describe(kind); ctx.Err() != nil {
		return named(kind, c.op.Name, ctx.Err())
	}
	c.op.WillWait = true
	en, failure := t.part.Engine().Enqueue(&c.op)
	if failure != nil {
		return wrap(failure)
	}
	if err := t.await(ctx, en); err != nil {
		return err
	}
	b.spread(c, kind)
	return nil
}

// await waits for an operation, to which it leaves t.call if ctx ends before.
func (t *Table) await(ctx context.Context, en *engine.Entry) error {
	h := Handle{entry: en}
	err := h.Wait(ctx)
	if h.entry != nil {
		t.call = new(tableCall)
	}
	return err
}

// useTables does a Pull or Push of several tables.
func useTables(ctx context.Context, kind operation.Kind, batches []TableBatch) error {
	if len(batches) == 1 {
		return batches[0].Table.use(ctx, kind, batches[0])
	}
	tables := make([]*Table, len(batches))
	for i, b := range batches {
		if slices.Contains(tables, b.Table) {
			return fmt.Errorf("table %q is given twice: %w", b.Table.part.Options().Name, ErrInvalidArgument)
		}
		tables[i] = b.Table
	}
	// Two goroutines may have some tables in common.
	slices.SortFunc(tables, func(a, b *Table) int { return cmp.Compare(a.number, b.number) })
	for _, t := range tables {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	if len(batches) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	calls, ops := make([]*tableCall, len(batches)), make([]engine.Op, len(batches))
	for i, b := range batches {
		calls[i], ops[i] = b.Table.call, b.describe(kind)
		ops[i].WillWait = true
	}
	entries, failure := batches[0].Table.part.Engine().EnqueueGroup(groupOf(ops), ops)
	if failure != nil {
		return wrap(failure)
	}
	var err error
	for i, en := range entries {
		err = firstError(err, batches[i].Table.await(ctx, en))
	}
	for i := 0; i < len(batches) && err == nil; i++ {
		batches[i].spread(calls[i], kind)
	}
	return err
}

// groupOf names the group of an operation on several tables for them.
func groupOf(ops []engine.Op) string {
	name := fmt.Sprintf("%d tables: ", len(ops))
	for i := range ops {
		name += ops[i].Name + " "
	}
	return name[:min(len(name), table.MaxName)]
}

// describe makes the operation of a batch. It is refused on all processes if the batch makes no sense.
func (b *TableBatch) describe(kind operation.Kind) engine.Op {
	t := b.Table
	c, dim := t.call, t.part.Options().Dim
	err := t.part.Fill(&c.lookup, b.Keys, table.Padding{})
	if n := len(b.Keys) * dim; err == nil && len(b.Rows) != n {
		err = fmt.Errorf("%d numbers for %d keys; %d are needed", len(b.Rows), len(b.Keys), n)
	}
	if n := len(c.lookup.Keys) * dim; err == nil && cap(c.rows) < n {
		c.rows = make([]float32, n+n/4)
	} else if err != nil {
		op := engine.Op{}
		if kind == operation.Pull {
			op = t.part.Pull(&c.lookup, nil, false)
		} else {
			op = t.part.Push(&c.lookup, nil, t.rate)
		}
		op.Refused = err.Error()
		return op
	}
	c.rows = c.rows[:len(c.lookup.Keys)*dim]
	if kind == operation.Pull {
		return t.part.Pull(&c.lookup, c.rows, false)
	}
	b.gather()
	return t.part.Push(&c.lookup, c.rows, t.rate)
}

// spread copies the rows that a Pull has brought to their places.
func (b *TableBatch) spread(c *tableCall, kind operation.Kind) {
	if kind != operation.Pull {
		return
	}
	dim := b.Table.part.Options().Dim
	for i, at := range c.lookup.Index {
		copy(b.Rows[i*dim:][:dim], c.rows[int(at)*dim:])
	}
}

// gather adds the gradients of equal keys in their order.
func (b *TableBatch) gather() {
	c, dim := b.Table.call, b.Table.part.Options().Dim
	clear(c.rows)
	for i, at := range c.lookup.Index {
		sum := c.rows[int(at)*dim:][:dim]
		for j, g := range b.Rows[i*dim:][:dim] {
			sum[j] += g
		}
	}
}
