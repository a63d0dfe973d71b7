//go:build cgo && linux

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/gpu/carrier"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// limit is the longest time that an operation may take on a loaded machine.
const limit = 60 * time.Second

// running is an operation that has been submitted.
type running struct {
	op     *op
	entry  *engine.Entry
	slot   *slot // nil: on host memory
	want   []byte
	landed unsafe.Pointer // the result, once the device is done
}

// describe makes the engine's form of an operation, without its memory.
func describe(o *op, name string, s *set, dtype tensor.DType) engine.Op {
	return engine.Op{Type: o.kind, DType: dtype, ReduceOp: o.reduce, Name: name, Set: s.id, Root: s.ranks[o.root],
		Shape: tensor.Shape{int64(o.rows(s.rank())), int64(o.width)}, Prescale: o.prescale, Postscale: o.postscale,
		Splits: o.splits(s.rank())}
}

// likeInput reports whether the output has the input's shape, so that the program provides its memory. Otherwise the
// engine asks for memory.
func (o *op) likeInput() bool {
	return o.kind == operation.Allreduce || o.kind == operation.Broadcast || o.kind == operation.Reduce ||
		o.kind == operation.Adasum
}

// inPlace reports whether the output is the input.
func (o *op) inPlace() bool { return o.place && o.likeInput() && o.kind != operation.Reduce }

// onHost gives an operation its memory on the host.
func onHost(o *op, e *engine.Op, in []byte) {
	e.In = append([]byte{}, in...)
	switch {
	case o.inPlace():
		e.Out = e.In
	case o.likeInput():
		e.Out = make([]byte, len(in))
	default:
		e.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
	}
}

// onDevice gives an operation its memory on the device, and lets the program's stream make the input.
func (r *rank) onDevice(o *op, e *engine.Op, in []byte) (*slot, error) {
	s, err := r.gpu.produce(o, in)
	if err != nil {
		return nil, err
	}
	owner := r.devices.Owner(r.gpu.context.Device(), r.gpu.streams[o.stream])
	t, _ := owner.(*carrier.Tensor) // else it is refused
	e.Owner, e.In = owner, at(s.input, len(in))
	switch {
	case o.inPlace():
		e.Out = e.In
	case o.likeInput():
		e.Out = at(s.output, len(in))
	case o.allocates && t != nil:
		e.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return t.Alloc(n) }
		e.Free = t.Free
	default:
		e.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return at(s.output, n), nil }
	}
	return s, nil
}

// submit submits a program, in host memory or on the device. Each rank draws its own order of the operations.
func (r *rank) submit(p *program, prefix string, device bool) (all []running, err error) {
	s := r.sets[p.set]
	ops := make([]engine.Op, len(p.ops))
	for i := range p.ops {
		o := &p.ops[i]
		dtype := o.dtype
		if !device {
			dtype = o.onHost()
		}
		ops[i] = describe(o, fmt.Sprintf("%s.%d.%d", prefix, s.id, i), s, dtype)
		in, run := o.input(s.rank(), dtype), running{op: o}
		if device {
			run.slot, err = r.onDevice(o, &ops[i], in)
		} else {
			onHost(o, &ops[i], in)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, run)
	}
	if p.grouped {
		entries, failed := process.EnqueueGroup(fmt.Sprintf("%s.%d", prefix, s.id), ops)
		if failed != nil {
			return nil, failed
		}
		for i := range entries {
			all[i].entry = entries[i]
		}
		return all, nil
	}
	order := r.dice.Perm(len(ops))
	for n, i := range order {
		entry, failed := process.Enqueue(&ops[i])
		if failed != nil {
			for _, later := range order[n+1:] {
				if owner := ops[later].Owner; owner != nil {
					owner.Release()
				}
			}
			return all, failed
		}
		all[i].entry = entry
	}
	return all, nil
}

// wait waits for an operation, and returns the memory of its result.
func (r *rank) wait(a *running) ([]byte, error) {
	if !a.entry.Wait(limit) {
		return nil, fmt.Errorf("%v %q does not end", a.op.kind, a.entry.Name())
	}
	if err := a.entry.Err(); err != nil {
		return nil, err
	}
	out, _ := a.entry.Output()
	if t, ok := a.entry.Owner().(*carrier.Tensor); ok && *async {
		return out, t.Wait(r.gpu.streams[a.op.reads])
	}
	return out, nil
}

// release releases operations. Some may not have been submitted.
func release(all []running) {
	for i := range all {
		if all[i].entry != nil {
			all[i].entry.Release()
		}
	}
}

// burst runs programs at the same time: first all in host memory, then all on the device.
func (r *rank) burst(programs []program) error {
	if !*outputs { // else no stream of the program waits before it uses memory of an earlier operation again
		r.gpu.used = [callers]int{}
	}
	hosts, err := r.submitAll(programs, "host", false)
	defer func() { release(hosts) }()
	if err != nil {
		return err
	}
	wants := make([][]byte, len(hosts))
	for i := range hosts {
		out, err := r.wait(&hosts[i])
		if err != nil {
			return err
		}
		if wants[i], err = hosts[i].op.fromHost(out); err != nil {
			return err
		}
	}
	gpus, err := r.submitAll(programs, "device", true)
	defer func() { release(gpus) }()
	if err != nil {
		return err
	}
	if r.dying {
		r.die()
	}
	if programs[0].barrier {
		if err := meet(operation.Barrier); err != nil {
			return err
		}
	}
	for i := range gpus {
		if err := r.finish(&gpus[i], wants[i]); err != nil {
			return err
		}
	}
	return nil
}

// finish waits for an operation on the device, and lets the program's stream copy its result.
func (r *rank) finish(a *running, want []byte) error {
	out, err := r.wait(a)
	if err != nil {
		return err
	}
	if a.op.kind == operation.Reduce && out == nil {
		return nil // not the root
	}
	if len(out) != len(want) {
		return fmt.Errorf("%v %q has %d bytes on the device, and %d on the host", a.op.kind, a.entry.Name(), len(out),
			len(want))
	}
	landed, err := r.gpu.fetch(a.op, a.slot, addressOf(out), len(want))
	if err != nil {
		return err
	}
	r.results = append(r.results, running{op: a.op, want: want, landed: landed})
	if a.op.allocates && !a.op.likeInput() {
		if owned := a.entry.TakeOutput(); owned != nil {
			r.giveBack(a, owned)
		}
	}
	return nil
}

// giveBack frees an output that the engine has made, when the program's stream has copied it. One half of the outputs
// are freed by CUDA, which waits for the device. The engine may use the others again.
func (r *rank) giveBack(a *running, owned []byte) {
	if a.op.values%2 == 0 && !*outputs {
		a.entry.Owner().(*carrier.Tensor).Free(owned)
		return
	}
	r.devices.GiveBack(r.gpu.context.Device(), addressOf(owned), len(owned), r.gpu.streams[a.op.reads])
}

// submitAll submits programs in an order that this rank draws. The results are in the order of the programs.
func (r *rank) submitAll(programs []program, prefix string, device bool) ([]running, error) {
	parts := make([][]running, len(programs))
	for _, i := range r.dice.Perm(len(programs)) {
		p := &programs[i]
		if r.sets[p.set].rank() < p.joined {
			continue
		}
		var err error
		if parts[i], err = r.submit(p, fmt.Sprint(prefix, i), device); err != nil {
			return slices.Concat(parts...), err
		}
	}
	return slices.Concat(parts...), nil
}

// meet waits for all other ranks, in a join or a barrier. Ranks that have joined take part with zeros.
func meet(kind operation.Kind) error {
	entry, failed := process.Enqueue(&engine.Op{Type: kind, Prescale: 1, Postscale: 1})
	if failed != nil {
		return failed
	}
	defer entry.Release()
	if !entry.Wait(limit) {
		return fmt.Errorf("the %v does not end", kind)
	}
	if err := entry.Err(); err != nil {
		return err
	}
	return nil
}

// compare compares the device's results with the host's. i is the number of the last program.
func (r *rank) compare(i int) error {
	if err := r.gpu.idle(limit); err != nil {
		return err
	}
	for _, a := range r.results {
		if got := unsafe.Slice((*byte)(a.landed), len(a.want)); !bytes.Equal(got, a.want) {
			return fmt.Errorf("by program %d, seed %d: %v of %v, %v differs:\nhost   %x\ndevice %x",
				i, *seed, a.op.kind, a.op.dtype, a.op.reduce, a.want[:min(64, len(got))], got[:min(64, len(got))])
		}
	}
	r.results, r.gpu.landed = r.results[:0], 0
	return nil
}

// draw makes the next burst of programs, the same on all ranks. A program with a join is a burst by itself.
func draw(i, programs int, sizes []int) []program {
	dice := rand.New(rand.NewPCG(*seed, uint64(i)))
	if *chain {
		return []program{link(i, dice, sizes)}
	}
	n := min(1+dice.IntN(3), programs-i)
	var all []program
	for k := range n {
		all = append(all, drawProgram(*seed<<32+uint64(i+k), sizes))
	}
	if *joins || sizes[0] > 1 && dice.IntN(20) == 0 {
		return []program{drawJoin(dice, sizes[0])}
	}
	return all
}

// link makes one operation of a chain. Each operation uses the memory of earlier ones, often in another process set,
// and has each wait that it needs only once. So no wait can be left out.
func link(i int, dice *rand.Rand, sizes []int) program {
	set := i % min(2, len(sizes))
	if *outputs {
		set = 0
	}
	o := drawOp(dice, sizes[set])
	o.kind, o.root, o.stream, o.place, o.allocates = chained[i%len(chained)], 0, i/2%2, false, *faults != ""
	if *async { // else the program's own stream would order some of the operations of different sets
		o.stream = i % 2
	}
	o.reduce = tensor.Sum
	if o.dtype.IsFloat8() || o.dtype == tensor.Bool {
		o.dtype = tensor.Float32
	}
	o.reads = o.stream
	for _, row := range o.counts {
		for k := range row {
			row[k] = row[k]%100 + sizes[set] // each member has at least one row
		}
	}
	if *outputs {
		o.makesOutput(sizes[set])
	}
	return program{set: set, ops: []op{o}}
}

// makesOutput makes o an operation for whose output the engine uses the memory of an earlier output again. The program
// submits on one stream and reads on another, so only the engine keeps the operation from writing to an output that is
// still being copied.
func (o *op) makesOutput(size int) {
	o.kind, o.dtype, o.allocates, o.width, o.stream, o.reads = operation.Allgather, tensor.Float32, true, 1, 0, 1
	for m := range o.counts {
		o.counts[m][0] = 120 / size // all outputs are of one size
	}
}
