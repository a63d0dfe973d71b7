package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// farMemory is memory that looks to the engine like a device's: it has addresses, but an access from the host is a
// fault. near is the same memory for the device itself.
type farMemory struct {
	far, near []byte
	used      int
	released  int
}

func newFarMemory(t testing.TB) *farMemory {
	const size = 1 << 20
	fd, err := unix.MemfdCreate("far memory", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	m := &farMemory{}
	if err = unix.Ftruncate(fd, size); err == nil {
		if m.near, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			m.far, err = unix.Mmap(fd, 0, size, unix.PROT_NONE, unix.MAP_SHARED)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m.near); unix.Munmap(m.far) })
	return m
}

// Release counts the operations that the engine has forgotten.
func (m *farMemory) Release() { m.released++ }

func (m *farMemory) alloc(n int) []byte {
	p := m.far[m.used : m.used+n : m.used+n]
	m.used += (n + 63) / 64 * 64
	return p
}

// put returns far memory with the given contents.
func (m *farMemory) put(p []byte) []byte {
	far := m.alloc(len(p))
	copy(m.at(far), p)
	return far
}

// at returns the device's view of p.
func (m *farMemory) at(p []byte) []byte {
	if len(p) == 0 {
		return nil
	}
	at := uintptr(unsafe.Pointer(&p[0])) - uintptr(unsafe.Pointer(&m.far[0]))
	return m.near[at : at+uintptr(len(p))]
}

// farDevices carry operations on a rank's far memory by copying it and using the host's carrier.
type farDevices struct {
	memory *farMemory
	staged bool // the carrier only copies
	made   int
	begun  int
	closed []error
	freed  int
}

func (d *farDevices) Abort(error) {}

func (d *farDevices) Share() {}

func (d *farDevices) Close() {}

func (d *farDevices) Settled() (bool, error) { return true, nil }

func (d *farDevices) Refuse(owner collective.Owner) error {
	if owner != d.memory {
		return errors.New("this is another device")
	}
	return nil
}

func (d *farDevices) Carrier(_ Opening, host collective.Carrier) DeviceCarrier {
	d.made++
	return &farCarrier{devices: d, host: host}
}

type farCarrier struct {
	devices *farDevices
	host    collective.Carrier
	founded bool
	op      collective.Op
	args    collective.Arguments
	outs    [][2][]byte // on the device, on the host
}

func (c *farCarrier) Start(a *collective.Arguments) collective.Op {
	c.devices.begun++
	c.args, c.outs = *a, nil
	c.args.Owners = nil
	c.args.Parts = slices.Clone(a.Parts)
	for i, p := range a.Parts {
		h := &c.args.Parts[i]
		h.In, h.Out = slices.Clone(c.devices.memory.at(p.In)), make([]byte, len(p.Out))
		if p.In == nil {
			h.In = nil
		}
		c.outs = append(c.outs, [2][]byte{p.Out, h.Out})
	}
	if p := &c.args.Parts[0]; a.Kind != collective.Allreduce && a.Kind != collective.Adasum {
		c.alone(p)
		c.args.Parts = nil
	}
	c.op = c.host.Start(&c.args)
	return c
}

func (c *farCarrier) Found() collective.Op {
	if c.founded {
		return nil
	}
	c.founded, c.outs = true, nil
	c.op = c.host.Start(&collective.Arguments{Kind: collective.Barrier})
	return c
}

func (c *farCarrier) Carries(kind operation.Kind, _ tensor.DType, _ tensor.ReduceOp, _, _ float64) bool {
	return !c.devices.staged && kind != operation.Adasum
}

func (c *farCarrier) Fetch(parts []collective.Part, owners []collective.Owner) collective.Op {
	for i := range parts {
		parts[i].Out = slices.Clone(c.devices.memory.at(parts[i].In))
	}
	return nothing{}
}

func (c *farCarrier) Store(parts []collective.Part, owners []collective.Owner) collective.Op {
	for i := range parts {
		copy(c.devices.memory.at(parts[i].Out), parts[i].In)
	}
	return nothing{}
}

func (c *farCarrier) Reserve(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

// nothing is an operation that is done already.
type nothing struct{}

func (nothing) Advance() (bool, error) { return true, nil }

// alone makes arguments for the host's carrier, of an operation on one tensor.
func (c *farCarrier) alone(p *collective.Part) {
	if p.In == nil {
		p.In = make([]byte, p.Bytes)
	}
	if c.args.Kind == collective.Broadcast {
		if len(p.Out) == 0 {
			p.Out = make([]byte, p.Bytes)
		}
		copy(p.Out, p.In)
	}
	c.outs[0][1] = p.Out
	c.args.In, c.args.Out = p.In, p.Out
}

func (c *farCarrier) Advance() (bool, error) {
	done, err := c.op.Advance()
	if done && err == nil {
		for _, o := range c.outs {
			copy(c.devices.memory.at(o[0]), o[1])
		}
	}
	return done, err
}

func (c *farCarrier) Can() collective.Abilities {
	return collective.Abilities{Polled: true, Way: feed.ByNCCL}
}

func (c *farCarrier) Sent() collective.Sent  { return collective.Sent{} }
func (c *farCarrier) Moved() uint64          { return c.host.Moved() }
func (c *farCarrier) Tune(collective.Tuning) {}
func (c *farCarrier) Settled() (bool, error) { return true, nil }
func (c *farCarrier) Free()                  { c.devices.freed++ }

func (c *farCarrier) Close(cause error) bool {
	c.devices.closed = append(c.devices.closed, cause)
	return true
}

// newFarWorld is newWorld with a device for each rank.
func newFarWorld(t *testing.T, size int, shared bool) ([]*Engine, []*farDevices) {
	var devices []*farDevices
	engines := newWorld(t, size, shared, nil)
	for _, e := range engines {
		d := &farDevices{memory: newFarMemory(t)}
		devices = append(devices, d)
		e.opts.Devices = d
	}
	return engines, devices
}

// onDevice moves an operation's tensors to far memory.
func (d *farDevices) onDevice(op *Op) *Op {
	m := d.memory
	inPlace := len(op.Out) > 0 && &op.In[0] == &op.Out[0]
	op.Owner, op.In = m, m.put(op.In)
	switch {
	case inPlace:
		op.Out = op.In
	case op.Out != nil:
		op.Out = m.alloc(len(op.Out))
	default:
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return m.alloc(n), nil }
	}
	return op
}

// deviceProgram is one operation of each kind for a rank.
func deviceProgram(r, size int) []*Op {
	x := func(name string, rows int64, in []byte) *Op {
		return &Op{Name: name, DType: tensor.Float32, ReduceOp: tensor.Sum, Prescale: 1, Postscale: 1,
			Shape: tensor.Shape{rows, int64(len(in)) / 4 / rows}, In: in,
			Alloc: func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }}
	}
	f := float32(r + 1)
	inPlace, average := floats(f, 2*f, 3*f), x("average", 1, floats(f, f*f))
	average.ReduceOp, average.Out = tensor.Average, make([]byte, 8)
	scaled := x("scaled", 1, floats(f, f))
	scaled.Prescale, scaled.Postscale, scaled.Out = 2, 0.5, make([]byte, 8)
	broadcast := x("broadcast", 1, floats(f, f))
	broadcast.Type, broadcast.Root, broadcast.Out = operation.Broadcast, size-1, make([]byte, 8)
	gather := x("gather", int64(r+1), floats(slices.Repeat([]float32{f, -f}, r+1)...))
	gather.Type = operation.Allgather
	toAll := x("to all", int64(2*size), floats(slices.Repeat([]float32{f, -f}, size)...))
	toAll.Type = operation.Alltoall
	scatter := x("scatter", int64(2*size-1), floats(slices.Repeat([]float32{f}, 2*(2*size-1))...))
	scatter.Type = operation.Reducescatter
	reduce := x("reduce", 1, floats(f, f))
	reduce.Type, reduce.Out = operation.Reduce, make([]byte, 8)
	adasum := x("adasum", 1, floats(f, 2))
	adasum.Type, adasum.ReduceOp, adasum.Out = operation.Adasum, tensor.Adasum, make([]byte, 8)
	return []*Op{sum("in place", inPlace), average, scaled, broadcast, gather, toAll, scatter, reduce, adasum}
}

// Each kind has the same result on a device as on the host. All are submitted together, among operations on host
// memory, and again by their cards: directly, staged, and with the copies that the program of one rank has made. The
// engine itself touches nothing on a device: an access would be a fault.
func TestEachKindOnADevice(t *testing.T) {
	for _, way := range []string{"direct", "staged", "direct over messages", "staged over messages", "copied"} {
		t.Run(way, func(t *testing.T) { testEachKindOnADevice(t, way) })
	}
}

func testEachKindOnADevice(t *testing.T, way string) {
	engines, devices := newFarWorld(t, 3, !strings.HasSuffix(way, "messages"))
	for _, d := range devices {
		d.staged = strings.HasPrefix(way, "staged")
	}
	each(engines, func(r int, e *Engine) {
		for round := range 2 {
			want, mine := runAll(t, e, deviceProgram(r, 3)), deviceProgram(r, 3)
			for i, op := range mine {
				switch {
				case i%4 == round: // it stays on the host
				case way == "copied" && r == 1:
					op.Copied = true
				default:
					devices[r].onDevice(op)
				}
			}
			for i, got := range runAll(t, e, mine) {
				if mine[i].Owner != nil {
					got = devices[r].memory.at(got)
				}
				if !bytes.Equal(got, want[i]) {
					t.Errorf("rank %d: %q has %v, not %v", r, mine[i].Name, got, want[i])
				}
			}
		}
	})
	for r, d := range devices {
		begun, made, released := 12, 1, 13 // Adasum is staged
		switch {
		case d.staged:
			begun = 0
		case way == "copied" && r == 1:
			begun, made, released = 0, 0, 0
		case way == "copied":
			begun = 0
		}
		if d.made != made || d.begun > begun || begun > 0 && d.begun < 8 || d.memory.released != released {
			t.Errorf("rank %d: %d carriers, %d operations, %d tensors forgotten", r, d.made, d.begun,
				d.memory.released)
		}
	}
}

// runAll submits all, waits for all, and returns their outputs.
func runAll(t *testing.T, e *Engine, ops []*Op) (outs [][]byte) {
	var entries []*Entry
	for _, op := range ops {
		op := *op
		en, err := e.Enqueue(&op)
		if err != nil {
			t.Errorf("%q: %v", op.Name, err)
			continue
		}
		entries = append(entries, en)
	}
	for _, en := range entries {
		if !en.Wait(limit) || en.Err() != nil {
			t.Errorf("%q: %v", en.Name(), en.Err())
		}
		out, _ := en.Output()
		outs = append(outs, out)
		en.Release()
	}
	return outs
}

// Tensors fuse only with tensors in the same kind of memory.
func TestDevicesFuseApart(t *testing.T) {
	engines, devices := newFarWorld(t, 2, true)
	each(engines, func(r int, e *Engine) {
		ops := make([]Op, 10)
		for i := range ops {
			op := sum(fmt.Sprint(i), floats(1, 2))
			if i%2 == 0 {
				op = devices[r].onDevice(op)
			}
			ops[i] = *op
		}
		entries, err := e.EnqueueGroup("group", ops)
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		for i, en := range entries {
			en.Wait(limit)
			out, _ := en.Output()
			if i%2 == 0 {
				out = devices[r].memory.at(out)
			}
			if en.Err() != nil || !bytes.Equal(out, floats(2, 4)) {
				t.Errorf("rank %d: tensor %d has %v, %v", r, i, out, en.Err())
			}
			en.Release()
		}
	})
	if n := devices[0].begun; n != 1 {
		t.Errorf("%d operations on the device; the five tensors are one", n)
	}
}

// A tensor on a GPU of one rank and in host memory of another fails on both, with Horovod's words.
func TestRanksDifferInMemory(t *testing.T) {
	engines, devices := newFarWorld(t, 2, true)
	for range 2 {
		each(engines, func(r int, e *Engine) {
			op := sum("x", floats(1))
			if r == 1 {
				op = devices[r].onDevice(op)
			}
			err := do(t, e, op)
			if err == nil || err.Code != PreconditionError || !strings.HasPrefix(err.Reason, "Mismatched "+
				"ALLREDUCE CPU/GPU device selection: One rank specified device CPU, but another rank specified device "+
				"GPU.") {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
}

// A rank that has joined takes part in an operation on a device without a tensor of its own.
func TestJoinOnADevice(t *testing.T) {
	engines, devices := newFarWorld(t, 2, false)
	each(engines, func(r int, e *Engine) {
		if r == 1 {
			op := devices[r].onDevice(sum("x", floats(3)))
			if err := do(t, e, op); err != nil || !bytes.Equal(devices[r].memory.at(op.Out), floats(3)) {
				t.Errorf("%v, %v", devices[r].memory.at(op.Out), err)
			}
		}
		if err := do(t, e, &Op{Type: operation.Join}); err != nil {
			t.Errorf("join of rank %d: %v", r, err)
		}
	})
	if devices[0].begun != 1 {
		t.Errorf("the rank that has joined began %d operations on its device", devices[0].begun)
	}
}

// The rows of a reducescatter may be its output where they are, and may not overlap with other rows.
func TestReducescatterOverItsInput(t *testing.T) {
	engines, devices := newFarWorld(t, 2, false)
	each(engines, func(r int, e *Engine) {
		for name, at := range map[string]int{"own": r, "other": 1 - r} {
			op := devices[r].onDevice(&Op{Type: operation.Reducescatter, ReduceOp: tensor.Sum, DType: tensor.Float32,
				Name: name, Prescale: 1, Postscale: 1, Shape: tensor.Shape{2}, In: floats(3, 5)})
			op.Out = op.In[4*at : 4*at+4]
			err := do(t, e, op)
			got, want := devices[r].memory.at(op.Out), floats([]float32{6, 10}[r])
			if at == r && (err != nil || !bytes.Equal(got, want)) {
				t.Errorf("rank %d in place: %v, %v", r, got, err)
			}
			if at != r && (err == nil || !strings.Contains(err.Reason, "this rank's own rows")) {
				t.Errorf("rank %d on the other's rows: %v", r, err)
			}
		}
	})
}

// A tensor on a device that nobody carries is refused.
func TestRefusedOnADevice(t *testing.T) {
	engines, devices := newFarWorld(t, 1, true)
	op := devices[0].onDevice(sum("x", floats(1)))
	op.Owner = newFarMemory(t)
	if err := do(t, engines[0], op); err == nil || !strings.Contains(err.Reason, "another device") {
		t.Errorf("another device: %v", err)
	}
	engines[0].opts.Devices = nil
	op = devices[0].onDevice(sum("x", floats(1)))
	if err := do(t, engines[0], op); err == nil || !strings.Contains(err.Reason, "copy the tensor there") {
		t.Errorf("without devices: %v", err)
	}
}

// The end of the engine ends the device's carriers first, with its cause.
func TestAbortReachesDevices(t *testing.T) {
	engines, devices := newFarWorld(t, 2, true)
	each(engines, func(r int, e *Engine) {
		if err := do(t, e, devices[r].onDevice(sum("x", floats(1)))); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	})
	cause := errors.New("enough")
	engines[0].Abort(cause)
	each(engines, func(r int, e *Engine) {
		if err := do(t, e, devices[r].onDevice(sum("y", floats(1)))); err == nil {
			t.Errorf("rank %d: a sum after an abort has ended", r)
		}
		e.Shutdown(limit)
		if d := devices[r]; len(d.closed) != 1 || d.closed[0] == nil || d.freed != 1 {
			t.Errorf("rank %d: closed with %v, freed %d times", r, d.closed, d.freed)
		}
	})
}
