// Package table is one rank's part of a sparse table: rows of float32 under 64-bit keys, such as the embeddings of
// users, of which no machine can hold all. Rows are born when they are first asked for, with numbers that depend on
// seed, table and key alone. An optimizer changes them where they are. The engine calls Pull and Update for the members
// of a process set; package slots says which of them owns a key. The package knows no ranks and sends nothing.
//
// All arithmetic is that of IEEE 754 in float32, one rounding for each operation, and square roots are exact. Each
// product is converted before it is added to something, because Go may otherwise fuse the two on some machines. So
// equal calls leave the same bits on every machine.
package table

import (
	"errors"
	"fmt"
	"sync"
)

// ErrClosed: the table has been closed, or its job has ended.
var ErrClosed = errors.New("the table is closed")

// ErrAmid: an update has changed some rows of the table, and not yet the others.
var ErrAmid = errors.New("a push is in progress; wait for it first")

// MaxRows is the most rows of one rank.
const MaxRows = 1<<32 - 2

// Table holds rows. Its methods are safe on any goroutine.
type Table struct {
	options Options
	birth   birth
	rule    rule

	heat heat

	mu     sync.Mutex // guards all that follows
	closed bool
	rows   rows
	index  index
	cursor cursor // of the call that holds mu
	steps  uint32 // how many updates have been applied
	round  uint32 // the number of the pull, of all members; its highest bit is set: see header.mark
	amid   bool   // the last update has rows to change or to evict yet
	// replaced is how often Replace has taken all rows away.
	replaced int

	candidates *candidates // nil if each key has a row from its first pull on
	eviction   eviction
}

// New makes an empty table. o must be valid: see Options.Check.
func New(o Options) *Table {
	t := &Table{options: o, birth: newBirth(&o), rule: newRule(&o), eviction: newEviction(&o), round: firstRound}
	if o.admits() {
		t.candidates = new(candidates)
	}
	t.rows = newRows(o.Dim, t.rule.states(o.Dim))
	return t
}

// Options are the table's. Do not change them.
func (t *Table) Options() *Options { return &t.options }

// BeginPull begins another pull of the members, who then call Pull one after the other. It counts once for a row,
// however many of them ask for it.
func (t *Table) BeginPull() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round = (t.round + 1) | firstRound
}

// firstRound is the first of Table.round.
const firstRound = 1 << 31

// Len is the number of rows.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows.n
}

// Bytes is the memory that the table has reserved: rows, and the index to find them.
func (t *Table) Bytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.rows.slabs))*int64(t.rows.slabBytes()) + t.index.bytes()
}

// Close frees the rows. Afterwards every method fails, or finds no rows.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.rows.free()
	t.index.free()
	t.candidates = nil
}

// describe adds the table's name to err.
func (t *Table) describe(err error) error { return fmt.Errorf("table %q: %w", t.options.Name, err) }
