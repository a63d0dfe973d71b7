//go:build cgo && linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// The choices for programs. NCCL cannot reduce int16, uint16 and bool, and has no bitwise operations, so these
// reductions are staged, and so is Adasum.
var (
	kinds = []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Allreduce, operation.Broadcast,
		operation.Reduce, operation.Allgather, operation.Reducescatter, operation.Alltoall, operation.Gather,
		operation.Scatter, operation.Adasum}
	groupable = []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Allgather, operation.Reducescatter}
	dtypes    = []tensor.DType{tensor.Uint8, tensor.Int8, tensor.Uint16, tensor.Int16, tensor.Int32, tensor.Int64,
		tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float32, tensor.Float64, tensor.Bool,
		tensor.Float8E4M3FN, tensor.Float8E5M2}
	reductions = []tensor.ReduceOp{tensor.Sum, tensor.Sum, tensor.Sum, tensor.Average, tensor.Product, tensor.Max,
		tensor.Min, tensor.BitAnd, tensor.BitOr, tensor.BitXor}
	// chained are the operations of a chain, in their order.
	chained = []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Broadcast, operation.Reduce,
		operation.Allgather, operation.Reducescatter, operation.Alltoall}
)

// op is one operation of a program, the same on all members.
type op struct {
	kind      operation.Kind
	dtype     tensor.DType
	reduce    tensor.ReduceOp
	prescale  float64
	postscale float64
	root      int     // a member
	width     int     // elements in a row
	counts    [][]int // rows that one member has for another; kinds other than alltoall use some of them
	place     bool    // in place, if the kind can
	allocates bool    // the engine allocates the output, if its size depends on other ranks
	stream    int     // the program's that makes the input
	reads     int     // the program's that reads the result
	takes     time.Duration
	values    uint64 // seed
}

// program is a list of operations that one process set does at a time.
type program struct {
	set     int
	grouped bool // the operations are of one kind, and one group
	barrier bool // all ranks meet while the operations run
	alike   bool // the operations can travel together
	joined  int  // number of the first members that have joined, and take part with zeros
	ops     []op
}

// drawProgram makes a program from a seed, the same on all ranks. sizes has the sizes of the process sets.
func drawProgram(seed uint64, sizes []int) program {
	dice := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	p := program{set: dice.IntN(len(sizes)), grouped: dice.IntN(3) == 0, barrier: dice.IntN(8) == 0}
	kind := groupable[dice.IntN(len(groupable))]
	for range 1 + dice.IntN(4) {
		o := drawOp(dice, sizes[p.set])
		if p.grouped {
			o.kind = kind
		}
		o.reduction(dice, sizes[p.set])
		p.ops = append(p.ops, o)
	}
	if dice.IntN(3) == 0 {
		p.likeGradients(dice)
	}
	return p
}

// likeGradients adds operations to p, and makes all of them alike, so that they travel together like gradients.
func (p *program) likeGradients(dice *rand.Rand) {
	p.alike = true
	first := &p.ops[0]
	first.kind = operation.Allreduce
	first.reduction(dice, len(first.counts))
	for range dice.IntN(6) {
		p.ops = append(p.ops, drawOp(dice, len(first.counts)))
	}
	first = &p.ops[0]
	for i := range p.ops {
		o := &p.ops[i]
		o.kind, o.dtype, o.reduce, o.prescale, o.postscale = first.kind, first.dtype, first.reduce, first.prescale,
			first.postscale
	}
}

// drawJoin makes a program in which some ranks submit nothing, because they have joined.
func drawJoin(dice *rand.Rand, size int) program {
	p := program{joined: 1 + dice.IntN(size-1), grouped: dice.IntN(3) == 0}
	for range 1 + dice.IntN(6) {
		o := drawOp(dice, size)
		if o.kind = operation.Allreduce; !p.grouped && dice.IntN(4) == 0 {
			o.kind, o.root = operation.Reduce, p.joined+o.root%(size-p.joined)
		}
		o.reduction(dice, size)
		p.ops = append(p.ops, o)
	}
	if dice.IntN(3) == 0 {
		p.likeGradients(dice)
	}
	return p
}

func drawOp(dice *rand.Rand, size int) op {
	o := op{kind: kinds[dice.IntN(len(kinds))], dtype: dtypes[dice.IntN(len(dtypes))], root: dice.IntN(size),
		prescale: 1, postscale: 1, width: 1 + 2*dice.IntN(2), place: dice.IntN(2) == 0, allocates: dice.IntN(8) == 0,
		stream: dice.IntN(callers), values: dice.Uint64()}
	if dice.IntN(4) == 0 {
		o.takes = time.Duration(dice.IntN(500)) * time.Microsecond
	}
	o.reads = o.stream
	most := []int{1, 8, 100, 1000}[dice.IntN(4)]
	for range size {
		row := make([]int, size)
		for i := range row {
			row[i] = dice.IntN(most + 1)
		}
		o.counts = append(o.counts, row)
	}
	return o
}

// reduces reports whether the operation combines elements.
func (o *op) reduces() bool {
	return o.kind == operation.Allreduce || o.kind == operation.Reduce || o.kind == operation.Reducescatter
}

// reduction draws the reduce operation and the factors, such that all results are exact.
func (o *op) reduction(dice *rand.Rand, size int) {
	if o.kind == operation.Adasum {
		o.dtype, o.reduce = tensor.Float32, tensor.Adasum
		return
	}
	if o.prescale, o.postscale = 1, 1; !o.reduces() {
		return
	}
	if o.dtype.IsFloat8() && *mode == "staged" {
		o.dtype = tensor.BFloat16 // it would be refused
	}
	o.reduce = reductions[dice.IntN(len(reductions))]
	if !o.takesOp(size) {
		o.reduce = tensor.Sum
	}
	if !o.scales() {
		return
	}
	if dice.IntN(3) == 0 {
		o.prescale = []float64{0.5, 2, 4}[dice.IntN(3)]
	}
	if dice.IntN(4) == 0 {
		o.postscale = []float64{0.5, 2}[dice.IntN(2)]
	}
	if o.dtype.IsFloat8() && o.prescale*o.postscale == 8 {
		o.postscale = 1 // sums would be too large
	}
	if o.dtype.IsFloat8() && size == 1 {
		o.prescale, o.postscale = 1, 1 // it would be refused
	}
}

// scales reports whether the operation takes factors, with exact results.
func (o *op) scales() bool {
	switch o.reduce {
	case tensor.Sum:
		return o.dtype != tensor.Bool
	case tensor.Product, tensor.Max, tensor.Min:
		return o.dtype != tensor.Bool && !o.dtype.IsFloat8()
	}
	return false
}

// takesOp reports whether the type has the reduce operation, with exact results.
func (o *op) takesOp(size int) bool {
	switch o.reduce {
	case tensor.Average:
		return o.dtype != tensor.Bool && size&(size-1) == 0
	case tensor.BitAnd, tensor.BitOr, tensor.BitXor:
		return !isFloat(o.dtype) && !o.dtype.IsFloat8()
	}
	return true
}

// most is the size of the largest tensor, in bytes: the rows of four members for one.
const most = 4 * 1000 * 3 * 8

// rows returns the number of rows in a member's input.
func (o *op) rows(member int) int {
	switch o.kind {
	case operation.Alltoall:
		n := 0
		for _, c := range o.counts[member] {
			n += c
		}
		return n
	case operation.Scatter:
		n := 0
		for _, c := range o.counts[o.root] {
			if member == o.root {
				n += c
			}
		}
		return n
	case operation.Allgather, operation.Gather:
		return o.counts[member][0]
	}
	return o.counts[0][0]
}

// splits returns the rows that a member has for each member, or nil if the kind has no splits.
func (o *op) splits(member int) (rows []int32) {
	switch {
	case o.kind == operation.Alltoall, o.kind == operation.Scatter && member == o.root:
		for _, n := range o.counts[member] {
			rows = append(rows, int32(n))
		}
	case o.kind == operation.Scatter:
		rows = make([]int32, len(o.counts))
	case o.kind == operation.Gather:
		rows = make([]int32, len(o.counts))
		rows[o.root] = int32(o.rows(member))
	}
	return rows
}

// input returns a member's input. Its numbers are so small that all results are exact in all types, in any order of
// operands.
func (o *op) input(member int, dtype tensor.DType) []byte {
	dice := rand.New(rand.NewPCG(o.values, uint64(member)))
	var b []byte
	for range o.rows(member) * o.width {
		n := dice.IntN(6)
		if o.dtype.IsFloat8() || o.dtype == tensor.Bool {
			n %= 2
		}
		if o.reduce == tensor.Product {
			n = 1 + n%2
		}
		if o.dtype != tensor.Uint8 && o.dtype != tensor.Bool && dice.IntN(2) == 0 {
			n = -n
		}
		b = appendNumber(b, dtype, n)
	}
	return b
}

// onHost returns the type in which the host does the operation, because the host cannot reduce floats of 8 bits.
func (o *op) onHost() tensor.DType {
	if o.reduces() && o.dtype.IsFloat8() {
		return tensor.Float32
	}
	return o.dtype
}

// fromHost converts a result of the host to the operation's type.
func (o *op) fromHost(b []byte) ([]byte, error) {
	if o.onHost() == o.dtype {
		return bytes.Clone(b), nil
	}
	var out []byte
	for ; len(b) > 0; b = b[4:] {
		f := math.Float32frombits(binary.NativeEndian.Uint32(b))
		bits, exact := tensor.Float8Of(o.dtype, f)
		if !exact {
			return nil, fmt.Errorf("the program is wrong: %v is no %v", f, o.dtype)
		}
		out = append(out, bits)
	}
	return out, nil
}

func appendNumber(b []byte, t tensor.DType, n int) []byte {
	e := binary.NativeEndian
	switch t {
	case tensor.Float16:
		return e.AppendUint16(b, tensor.Float32ToFloat16(float32(n)))
	case tensor.BFloat16:
		return e.AppendUint16(b, tensor.Float32ToBFloat16(float32(n)))
	case tensor.Float32:
		return e.AppendUint32(b, math.Float32bits(float32(n)))
	case tensor.Float64:
		return e.AppendUint64(b, math.Float64bits(float64(n)))
	case tensor.Int16, tensor.Uint16:
		return e.AppendUint16(b, uint16(n))
	case tensor.Int32:
		return e.AppendUint32(b, uint32(n))
	case tensor.Int64:
		return e.AppendUint64(b, uint64(n))
	}
	if t.IsFloat8() {
		bits, _ := tensor.Float8Of(t, float32(n)) // the type has all small numbers
		return append(b, bits)
	}
	return append(b, byte(n))
}

func isFloat(t tensor.DType) bool {
	return t == tensor.Float16 || t == tensor.BFloat16 || t == tensor.Float32 || t == tensor.Float64
}
