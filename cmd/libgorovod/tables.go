package main

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// numbered gives things numbers for C, from 1 on. It never uses a number twice.
type numbered[T any] struct {
	mu   sync.Mutex
	last int64
	all  map[int64]T
}

func (n *numbered[T]) add(x T) int64 {
	number := n.reserve()
	n.set(number, x)
	return number
}

// reserve returns a number for set.
func (n *numbered[T]) reserve() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	return n.last
}

// reserved reports whether a number has been given out.
func (n *numbered[T]) reserved(number int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 0 < number && number <= n.last
}

// set gives x a reserved number, which may have had another thing.
func (n *numbered[T]) set(number int64, x T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = make(map[int64]T)
	}
	n.all[number] = x
}

func (n *numbered[T]) get(number int64) (T, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.all[number]
	return x, ok
}

func (n *numbered[T]) remove(number int64) (T, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.all[number]
	delete(n.all, number)
	return x, ok
}

// lookup is what a C caller asks of a table for a batch.
type lookup struct {
	table   *engine.Table
	keys    table.Lookup
	refused string // why the batch cannot be asked for; empty: it can
	pending []*engine.Entry
}

// idle reports whether no operation uses l any more, and lets go of those that have ended.
func (l *lookup) idle() bool {
	l.pending = slices.DeleteFunc(l.pending, func(e *engine.Entry) bool {
		if e.Done() {
			e.Release()
			return true
		}
		return false
	})
	return len(l.pending) == 0
}

var (
	tables  numbered[*engine.Table]
	lookups numbered[*lookup]
	spare   = sync.Pool{New: func() any { return new(lookup) }}
)

//export goTableReserve
func goTableReserve() C.int64_t { return C.int64_t(tables.reserve()) }

//export goTableCreate
func goTableCreate(c *C.gorovod_table, number *C.int64_t, reason *C.char) C.int {
	reserved := int64(c.number)
	if reserved != 0 && !tables.reserved(reserved) {
		explain(reason, fmt.Sprintf("number %d of the description is not from gorovod_table_reserve", reserved))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	w := process.World()
	if w == nil {
		explain(reason, engine.ErrNotInitialized.Reason)
		return C.GOROVOD_PRECONDITION_ERROR
	}
	o := table.Options{Dim: int(c.dim), Keys: int64(c.keys), Seed: uint64(c.seed), Init: table.Normal,
		Scale: float32(c.scale), Rate: float32(c.rate), Epsilon: float32(c.epsilon),
		InitialAccumulator: float32(c.initial_accumulator), Beta1: float32(c.beta1), Beta2: float32(c.beta2),
		Beta: float32(c.beta), L1: float32(c.l1), L2: float32(c.l2), Admit: uint32(c.admit_after),
		Idle: uint32(c.evict_idle), Keep: uint32(c.evict_keep), Rows: int64(c.max_rows)}
	if c.name != nil {
		o.Name = C.GoString(c.name)
	}
	if c.init != nil {
		o.Init = table.Init(C.GoString(c.init))
	}
	if c.optimizer != nil {
		o.Optimizer = table.Optimizer(C.GoString(c.optimizer))
	}
	o.Complete()
	t, failure := w.Engine.NewTable(int(c.process_set), o)
	if failure != nil {
		explain(reason, failure.Reason)
		return C.int(failure.Code)
	}
	if reserved == 0 {
		reserved = tables.reserve()
	}
	tables.set(reserved, t)
	*number = C.int64_t(reserved)
	return C.GOROVOD_OK
}

//export goTableRows
func goTableRows(number C.int64_t, reason *C.char) C.int64_t {
	t, ok := tables.get(int64(number))
	if !ok {
		explain(reason, unknownTable(number))
		return -1
	}
	return C.int64_t(t.Len())
}

//export goTableDim
func goTableDim(number C.int64_t, reason *C.char) C.int {
	t, ok := tables.get(int64(number))
	if !ok {
		explain(reason, unknownTable(number))
		return -1
	}
	return C.int(t.Options().Dim)
}

func unknownTable(table C.int64_t) string {
	number := int64(table)
	if tables.reserved(number) {
		return fmt.Sprintf("table %d is not there yet: in an elastic job a state makes it, in hvd.elastic.run", number)
	}
	return fmt.Sprintf("table %d is unknown", number)
}

//export goLookup
func goLookup(number C.int64_t, keys *C.int64_t, n C.int64_t, padding, index, distinct, result *C.int64_t,
	reason *C.char) C.int {
	t, ok := tables.get(int64(number))
	switch {
	case !ok:
		explain(reason, unknownTable(number))
		return C.GOROVOD_INVALID_ARGUMENT
	case n < 0 || n > 0 && (keys == nil || index == nil):
		explain(reason, fmt.Sprintf("%d keys at a NULL pointer", int64(n)))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	l := spare.Get().(*lookup)
	l.table, l.refused = t, ""
	var none table.Padding
	if padding != nil {
		none = table.Padding{Set: true, Key: int64(*padding)}
	}
	if err := t.Fill(&l.keys, numbers(keys, n), none); err != nil {
		l.refused, l.keys.Keys = err.Error(), l.keys.Keys[:0]
		*distinct = 0
		clear(numbers(index, n))
	} else {
		copy(numbers(index, n), l.keys.Index)
		*distinct = C.int64_t(len(l.keys.Keys))
	}
	*result = C.int64_t(lookups.add(l))
	return C.GOROVOD_OK
}

// numbers views C memory.
func numbers(p *C.int64_t, n C.int64_t) []int64 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*int64)(p), int(n))
}

func weights(p *C.float, l *lookup) []float32 {
	n := len(l.keys.Keys) * l.table.Options().Dim
	if p == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(p), n)
}

//export goLookupRefuse
func goLookupRefuse(number C.int64_t, why, reason *C.char) C.int {
	l, ok := lookups.get(int64(number))
	if !ok {
		explain(reason, unknownLookup(int64(number)))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	if l.refused == "" {
		l.refused = C.GoString(why)
	}
	return C.GOROVOD_OK
}

func unknownLookup(number int64) string { return fmt.Sprintf("lookup %d is unknown", number) }

//export goLookupRelease
func goLookupRelease(number C.int64_t) {
	if l, ok := lookups.remove(int64(number)); ok && l.idle() { // otherwise its operations keep its memory
		l.table = nil
		spare.Put(l)
	}
}

//export goPull
func goPull(n C.int, list *C.int64_t, rows **C.float, flags C.uint32_t, out *C.int64_t, reason *C.char) C.int {
	return use(n, list, flags, out, reason, func(i int, l *lookup) engine.Op {
		return l.table.Pull(&l.keys, weights(unsafe.Slice(rows, int(n))[i], l), flags&C.GOROVOD_LOOKS != 0)
	})
}

//export goPush
func goPush(n C.int, list *C.int64_t, gradients **C.float, rate C.float, flags C.uint32_t, out *C.int64_t,
	reason *C.char) C.int {
	return use(n, list, flags, out, reason, func(i int, l *lookup) engine.Op {
		return l.table.Push(&l.keys, weights(unsafe.Slice(gradients, int(n))[i], l), float32(rate))
	})
}

// use submits the operations of several lookups, as a group if there are several.
func use(n C.int, list *C.int64_t, flags C.uint32_t, out *C.int64_t, reason *C.char,
	describe func(i int, l *lookup) engine.Op) C.int {
	ops, asked := make([]engine.Op, int(n)), make([]*lookup, int(n))
	name := ""
	var e *engine.Engine
	for i, number := range unsafe.Slice((*int64)(list), int(n)) {
		l, ok := lookups.get(number)
		if !ok {
			explain(reason, unknownLookup(number))
			return C.GOROVOD_INVALID_ARGUMENT
		}
		ops[i], asked[i] = describe(i, l), l
		ops[i].Refused, ops[i].WillWait = l.refused, flags&C.GOROVOD_WILL_WAIT != 0
		ops[i].HoldsCaller = ops[i].WillWait
		e, name = l.table.Engine(), name+ops[i].Name+" "
	}
	var entries []*engine.Entry
	var failure *engine.Error
	if len(ops) == 1 {
		var en *engine.Entry
		if en, failure = e.Enqueue(&ops[0]); failure == nil {
			entries = append(entries, en)
		}
	} else {
		entries, failure = e.EnqueueGroup(name[:min(len(name), table.MaxName)], ops)
	}
	if failure != nil {
		explain(reason, failure.Reason)
		return C.int(failure.Code)
	}
	for i, en := range entries {
		l := asked[i]
		l.idle()
		en.Retain()
		l.pending = append(l.pending, en)
		unsafe.Slice(out, int(n))[i] = C.int64_t(handles.Add(en))
	}
	return C.GOROVOD_OK
}

//export goTableSave
func goTableSave(number C.int64_t, directory, reason *C.char) C.int {
	return useTable(number, reason, func(t *engine.Table) *engine.Error { return t.Save(nameOf(directory)) })
}

//export goTableLoad
func goTableLoad(number C.int64_t, directory, reason *C.char) C.int {
	return useTable(number, reason, func(t *engine.Table) *engine.Error { return t.Load(nameOf(directory)) })
}

// nameOf is a directory's name; it is refused on all ranks if it is NULL.
func nameOf(directory *C.char) string {
	if directory == nil {
		return ""
	}
	return C.GoString(directory)
}

//export goTableCommit
func goTableCommit(number, commit C.int64_t, part C.int, reason *C.char) C.int {
	return useTable(number, reason, func(t *engine.Table) *engine.Error {
		return process.CommitTable(t, int64(commit), int(part))
	})
}

//export goTableRestore
func goTableRestore(number, commit C.int64_t, part C.int, reason *C.char) C.int {
	return useTable(number, reason, func(t *engine.Table) *engine.Error {
		return process.RestoreTable(t, int64(commit), int(part))
	})
}

func useTable(number C.int64_t, reason *C.char, do func(*engine.Table) *engine.Error) C.int {
	t, ok := tables.get(int64(number))
	if !ok {
		explain(reason, unknownTable(number))
		return C.GOROVOD_INVALID_ARGUMENT
	}
	if failure := do(t); failure != nil {
		explain(reason, failure.Reason)
		return C.int(failure.Code)
	}
	return C.GOROVOD_OK
}

//export goTablePushes
func goTablePushes(number C.int64_t, reason *C.char) C.int64_t {
	t, ok := tables.get(int64(number))
	if !ok {
		explain(reason, unknownTable(number))
		return -1
	}
	progress, _ := t.Progress()
	return C.int64_t(progress.Updates)
}

//export goTableCopy
func goTableCopy(number C.int64_t, slot *C.int32_t, n C.int64_t, keys *C.int64_t, rows *C.float,
	reason *C.char) C.int64_t {
	t, ok := tables.get(int64(number))
	if !ok {
		explain(reason, unknownTable(number))
		return C.GOROVOD_TABLE_UNKNOWN
	}
	dim, most := t.Options().Dim, int(n)
	to := unsafe.Slice((*int64)(keys), most)
	numbers := unsafe.Slice((*float32)(rows), most*dim)
	copied := 0
	for ; *slot < slots.Count; *slot++ {
		found := t.CopySlot(int(*slot), to[copied:], numbers[copied*dim:])
		if found > most-copied {
			if copied == 0 {
				return C.int64_t(-found)
			}
			break
		}
		copied += found
	}
	return C.int64_t(copied)
}
