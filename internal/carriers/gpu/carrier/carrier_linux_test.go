package carrier

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const limit = 30 * time.Second

// member is a rank of these tests.
type member struct {
	*engine.Engine
	rank    int
	device  *device
	devices *Devices
	log     *bytes.Buffer
}

// world makes ranks with a device each; change, if set, is called before the engines start.
func world(t *testing.T, size int, change func(r int, d *device, o *Options)) (*machine, []*member) {
	m := newMachine(t)
	var ranks []*member
	for r, n := range inproc.NewWorld(size, inproc.Options{Shared: size%2 == 0, Cards: 256, ChunkBytes: 4096}) {
		d, log := m.device(r), new(bytes.Buffer)
		o := Options{Rank: r, Deadline: limit, Log: slog.New(slog.NewTextHandler(log, nil))}
		if change != nil {
			change(r, d, &o)
		}
		devices := New(d, o)
		e, err := engine.New(n, engine.Options{Rank: r, Size: size, FusionThreshold: 1 << 20, CacheCapacity: 256,
			Devices: devices})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, &member{e, r, d, devices, log})
	}
	t.Cleanup(func() {
		each(ranks, func(m *member) { m.Shutdown(limit) })
		if m.live != 0 {
			t.Errorf("%d communicators are left", m.live)
		}
	})
	return m, ranks
}

// outcome submits an operation, waits for its end, and returns its error.
func (m *member) outcome(op *engine.Op) *engine.Error {
	en, err := m.Enqueue(op)
	if err == nil {
		en.Wait(limit)
		err = en.Err()
		en.Release()
	}
	return err
}

func each(ranks []*member, f func(m *member)) {
	var wg sync.WaitGroup
	for _, m := range ranks {
		wg.Go(func() { f(m) })
	}
	wg.Wait()
}

// onDevice moves op's tensors to the device. Later work of the program's stream makes the input.
func (m *member) onDevice(t *testing.T, op *engine.Op) *engine.Op { return m.onStream(t, op, 0) }

func (m *member) onStream(t *testing.T, op *engine.Op, stream cuda.Stream) *engine.Op {
	d := m.device
	alloc := func(n int) []byte {
		a, err := d.Alloc(n)
		if err != nil {
			t.Error(err)
		}
		return memoryAt(a, n)
	}
	in := alloc(len(op.In))
	content := op.In
	d.queue(stream, func() {
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		copy(d.at(addressOf(in), len(in)), content)
	})
	owner, err := m.devices.Tensor(0, stream)
	if err != nil {
		t.Error(err)
		return op
	}
	inPlace := len(op.Out) > 0 && &op.Out[0] == &op.In[0]
	op.Owner, op.In = owner, in
	switch {
	case inPlace:
		op.Out = in
	case op.Out != nil:
		op.Out = alloc(len(op.Out))
	default:
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return owner.Alloc(n) }
		op.Free = owner.Free
	}
	return op
}

// random makes the same operation on all ranks for the same dice, with this rank's numbers, small and whole.
func random(dice *rand.Rand, name string, rank, size int) *engine.Op {
	kinds := []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Allreduce, operation.Broadcast,
		operation.Allgather, operation.Alltoall, operation.Reducescatter, operation.Reduce}
	types := []tensor.DType{tensor.Float32, tensor.Float32, tensor.Float64, tensor.Float16, tensor.BFloat16,
		tensor.Int32, tensor.Int64, tensor.Uint8, tensor.Int8, tensor.Int16}
	op := &engine.Op{Name: name, Type: kinds[dice.IntN(len(kinds))], DType: types[dice.IntN(len(types))],
		ReduceOp: tensor.Sum, Prescale: 1, Postscale: 1, Root: dice.IntN(size)}
	rows := 1 + dice.IntN(9)
	switch op.Type {
	case operation.Allreduce:
		ops := []tensor.ReduceOp{tensor.Sum, tensor.Average, tensor.Min, tensor.Max, tensor.Product}
		op.ReduceOp = ops[dice.IntN(len(ops))]
		if op.ReduceOp == tensor.Sum && dice.IntN(3) == 0 {
			op.Prescale, op.Postscale = 2, 0.25
		}
	case operation.Alltoall:
		rows *= size
	case operation.Allgather:
		if dice.IntN(2) == 0 {
			rows += rank
		}
	}
	op.Shape = tensor.Shape{int64(rows), int64(1 + dice.IntN(40))}
	n := rows * int(op.Shape[1])
	for i := range n {
		op.In = append(op.In, number(op.DType, i%3+rank%2+1)...)
	}
	switch op.Type {
	case operation.Allreduce:
		if op.Out = op.In; dice.IntN(2) == 0 {
			op.Out = make([]byte, len(op.In))
		}
	case operation.Broadcast:
		op.Out = make([]byte, len(op.In))
	case operation.Reduce:
		op.Out = make([]byte, len(op.In))
	default:
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
	}
	return op
}

// number returns the bytes of a small number of a type.
func number(dt tensor.DType, n int) []byte {
	b := factorOf(dt, float64(n))
	if b == nil {
		b = append([]byte{byte(n)}, make([]byte, dt.Size()-1)...)
	}
	return b
}

// run submits all, waits for all, and returns the outputs in host memory.
func (m *member) run(t *testing.T, ops []*engine.Op) (outs [][]byte) {
	var entries []*engine.Entry
	for _, op := range ops {
		op := *op
		en, err := m.Enqueue(&op)
		if err != nil {
			t.Errorf("rank %d: %q: %v", m.rank, op.Name, err)
			return nil
		}
		entries = append(entries, en)
	}
	for _, en := range entries {
		if !en.Wait(limit) || en.Err() != nil {
			t.Errorf("rank %d: %q: %v", m.rank, en.Name(), en.Err())
		}
		out, _ := en.Output()
		switch owner, ok := en.Owner().(*Tensor); {
		case en.Err() != nil:
			out = nil
		case ok:
			out = m.copyOut(t, owner, out)
		}
		outs = append(outs, bytes.Clone(out))
		en.Release()
	}
	return outs
}

// copyOut fetches a result through the program's stream.
func (m *member) copyOut(t *testing.T, owner *Tensor, p []byte) []byte {
	if m.devices.options.Async {
		if err := owner.Wait(0); err != nil {
			t.Error(err)
		}
	}
	got := make(chan []byte)
	m.device.queue(0, func() { got <- bytes.Clone(m.device.at(addressOf(p), len(p))) })
	return <-got
}

// Random programs have the same results on devices as in host memory: by NCCL, staged, and if one rank has copies.
func TestRandomPrograms(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i, way := range []string{"nccl", "auto", "async", "staged", "one rank copies", "without NCCL on one rank"} {
		t.Run(way, func(t *testing.T) {
			size := 2 + i%3
			_, ranks := world(t, size, func(r int, d *device, o *Options) {
				switch way {
				case "nccl":
					o.Mode = NCCL
				case "staged":
					o.Mode = Staged
				case "async":
					o.Async = true
				case "without NCCL on one rank":
					if r == 1 {
						d.without = errors.New("no libnccl.so.2")
					}
				}
			})
			each(ranks, func(m *member) {
				dice := rand.New(rand.NewPCG(seed, 1))
				for round := range 15 {
					var host, device []*engine.Op
					for k := range 1 + dice.IntN(12) {
						name := fmt.Sprint("host ", k+round%2*100)
						draw := dice.Uint64()
						host = append(host, random(rand.New(rand.NewPCG(draw, 2)), name, m.rank, size))
						op := random(rand.New(rand.NewPCG(draw, 2)), "device "+name, m.rank, size)
						if way == "one rank copies" && m.rank == 1 {
							op.Copied = true
						} else {
							m.onDevice(t, op)
						}
						device = append(device, op)
					}
					want, got := m.run(t, host), m.run(t, device)
					for k := range got {
						if host[k].Type == operation.Reduce && host[k].Root != m.rank {
							continue
						}
						if !bytes.Equal(got[k], want[k]) {
							t.Errorf("rank %d: %v of %v, %v: got %v, want %v", m.rank, host[k].Type, host[k].DType,
								host[k].ReduceOp, got[k], want[k])
						}
					}
				}
			})
		})
	}
}

// sum makes a sum of one float32 number.
func sum(m *member, t *testing.T, name string) *engine.Op {
	in := number(tensor.Float32, m.rank+1)
	return m.onDevice(t, &engine.Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: name,
		Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: in, Out: in})
}

// A job that cannot use NCCL is staged, and rank 0 logs why. In Mode NCCL its operations fail.
func TestWithoutNCCL(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(m *machine, r int, d *device, o *Options)
	}{
		{"rank 1: no NCCL here", func(_ *machine, r int, d *device, _ *Options) {
			if r == 1 {
				d.without = errors.New("no NCCL here")
			}
		}},
		{"rank 0 has NCCL 2.28.0, and rank 1 has NCCL 2.18.5", func(_ *machine, r int, d *device, _ *Options) {
			if r == 1 {
				d.version = 21805
			}
		}},
		{"rank 0 and rank 1 share the device GPU-0",
			func(_ *machine, _ int, d *device, _ *Options) { d.uuid = "GPU-0" }},
		{"rank 0, rank 1: NCCL has not made the communicator after 50ms",
			func(m *machine, _ int, _ *device, o *Options) { m.deaf, o.Deadline = 1, 50*time.Millisecond }},
		{"rank 1: memory for the trial: out of memory", func(_ *machine, r int, d *device, _ *Options) {
			if r == 1 {
				d.room = leastChunk / 2
			}
		}},
		{"rank 1: numbers for the trial: an error", func(_ *machine, r int, d *device, _ *Options) {
			if r == 1 {
				d.uncopied = errors.New("an error")
			}
		}},
		{"rank 0, rank 1: the trial of NCCL has a wrong result",
			func(m *machine, _ int, _ *device, _ *Options) { m.wrong = true }},
	} {
		for _, mode := range []Mode{Auto, NCCL} {
			if mode == NCCL && strings.Contains(c.want, "trial") {
				continue // there is none
			}
			_, ranks := world(t, 2, func(r int, d *device, o *Options) {
				o.Mode = mode
				c.change(d.machine, r, d, o)
			})
			each(ranks, func(m *member) {
				for i := range 2 {
					en, err := m.Enqueue(sum(m, t, fmt.Sprint("x", i)))
					if err == nil {
						en.Wait(limit)
						err = en.Err()
						out, _ := en.Output()
						if got := m.device.at(addressOf(out), 4); mode == Auto && (err != nil ||
							!bytes.Equal(got, number(tensor.Float32, 3))) {
							t.Errorf("rank %d: %v, %v", m.rank, got, err)
						}
						en.Release()
					}
					if mode == NCCL && (err == nil || !strings.Contains(err.Reason, c.want)) {
						t.Errorf("rank %d: %v; it should say %q", m.rank, err, c.want)
					}
				}
				if said := strings.Count(m.log.String(), c.want); mode == Auto && said != max(0, 1-m.rank) {
					t.Errorf("rank %d logs %q", m.rank, m.log)
				}
			})
		}
	}
}

// NCCL carries tensors of ranks that share a device, if it allows that.
func TestSharedDevice(t *testing.T) {
	_, ranks := world(t, 3, func(_ int, d *device, o *Options) { o.Mode, d.uuid, d.shares = NCCL, "GPU-0", true })
	each(ranks, func(m *member) {
		if got := m.run(t, []*engine.Op{sum(m, t, "x")})[0]; !bytes.Equal(got, number(tensor.Float32, 6)) {
			t.Errorf("rank %d: %v", m.rank, got)
		}
	})
}

// A rank that has joined takes part in sums with zeros, also in fused ones.
func TestJoin(t *testing.T) {
	for _, mode := range []Mode{NCCL, Staged} {
		_, ranks := world(t, 3, func(_ int, _ *device, o *Options) { o.Mode = mode })
		each(ranks, func(m *member) {
			for range 2 {
				var ops []*engine.Op
				for i := range m.rank * 10 {
					ops = append(ops, sum(m, t, fmt.Sprint("x", i)))
				}
				for i, out := range m.run(t, ops) {
					want := 5
					if i >= 10 {
						want = 3
					}
					if !bytes.Equal(out, number(tensor.Float32, want)) {
						t.Errorf("rank %d: sum %d is %v", m.rank, i, out)
					}
				}
				m.run(t, []*engine.Op{{Type: operation.Join}})
			}
		})
	}
}

// A rank that has joined takes part in sums of tensors of any size with little memory.
func TestJoinInPieces(t *testing.T) {
	for _, short := range []bool{false, true} {
		_, ranks := world(t, 2, func(r int, d *device, o *Options) {
			o.Mode = NCCL
			if short && r == 0 {
				d.room = absentPiece
			}
		})
		each(ranks, func(m *member) {
			if m.rank == 1 {
				var ops []*engine.Op
				for i, n := range []int{10, absentPiece/4 + 3, 20} {
					in := bytes.Repeat(number(tensor.Float32, i+1), n)
					ops = append(ops, m.onDevice(t, &engine.Op{Type: operation.Allreduce, DType: tensor.Float32,
						ReduceOp: tensor.Sum, Name: fmt.Sprint("x", i), Shape: tensor.Shape{int64(n)}, Prescale: 1,
						Postscale: 1, In: in, Out: in}))
				}
				for i, out := range m.run(t, ops) {
					if !bytes.Equal(out, bytes.Repeat(number(tensor.Float32, i+1), len(out)/4)) {
						t.Errorf("short of memory %v: sum %d is wrong", short, i)
					}
				}
			}
			m.run(t, []*engine.Op{{Type: operation.Join}})
			if said := strings.Contains(m.log.String(), "with one buffer of"); said != (short && m.rank == 0) {
				t.Errorf("rank %d logs %q", m.rank, m.log)
			}
		})
	}
}

// Floats of 8 bits move everywhere. NCCL reduces them if it can on all ranks, else the operation fails with the type's
// name.
func TestFloat8(t *testing.T) {
	one, _ := tensor.Float8Of(tensor.Float8E4M3FN, 1)
	two, _ := tensor.Float8Of(tensor.Float8E4M3FN, 2)
	half := func(k operation.Kind, name string, postscale float64) *engine.Op {
		in := []byte{one, two}
		op := &engine.Op{Type: k, DType: tensor.Float8E4M3FN, ReduceOp: tensor.Sum, Name: name, Shape: tensor.Shape{2},
			Prescale: 1, Postscale: postscale, In: in, Out: in}
		if k == operation.Allgather {
			op.Out, op.Alloc = nil, func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
		}
		return op
	}
	for _, c := range []struct {
		how       string
		change    func(r int, d *device, o *Options)
		postscale float64
		want      string
	}{
		{"all can", func(int, *device, *Options) {}, 0.5, ""},
		{"a factor that it lacks", func(int, *device, *Options) {}, 0.3, "needs NCCL 2.24"},
		{"an old NCCL", func(_ int, d *device, _ *Options) { d.version = 22304 }, 0.5, "needs NCCL 2.24"},
		{"an old device", func(r int, d *device, _ *Options) { d.major = 9 - r }, 0.5, "needs NCCL 2.24"},
		{"staged", func(_ int, _ *device, o *Options) { o.Mode = Staged }, 0.5, "needs NCCL 2.24"},
		{"in host memory", nil, 0.5, "in host memory (NCCL 2.24"},
	} {
		_, ranks := world(t, 2, c.change)
		each(ranks, func(m *member) {
			place := func(op *engine.Op) *engine.Op {
				if c.change == nil {
					return op
				}
				return m.onDevice(t, op)
			}
			all := m.run(t, []*engine.Op{place(half(operation.Allgather, "all", 1))})
			if want := []byte{one, two, one, two}; len(all) != 1 || !bytes.Equal(all[0], want) {
				t.Errorf("%s, rank %d: gathered %v", c.how, m.rank, all)
			}
			op := place(half(operation.Allreduce, "sum", c.postscale))
			en, err := m.Enqueue(op)
			if err == nil {
				if en.Wait(limit); en.Err() != nil {
					err = en.Err()
				} else if got := m.copyOut(t, en.Owner().(*Tensor), op.Out); !bytes.Equal(got, []byte{one, two}) {
					t.Errorf("%s, rank %d: %v", c.how, m.rank, got)
				}
				en.Release()
			}
			says := fmt.Sprintf("Allreduce of tensor %q: there is no sum of float8_e4m3fn", "sum")
			named := err == nil || strings.Contains(err.Reason, says) && strings.Contains(err.Reason, c.want)
			if !named || (err == nil) != (c.want == "") {
				t.Errorf("%s, rank %d: %v", c.how, m.rank, err)
			}
		})
	}
}

// Each process set has a communicator of its own.
func TestProcessSets(t *testing.T) {
	_, ranks := world(t, 3, func(_ int, _ *device, o *Options) { o.Mode = NCCL })
	each(ranks, func(m *member) {
		for round := range 2 {
			id, err := m.AddSet([]int{0, 2})
			if err != nil {
				t.Error(err)
				return
			}
			if m.rank != 1 {
				op := sum(m, t, "x")
				op.Set = id
				if out := m.run(t, []*engine.Op{op}); !bytes.Equal(out[0], number(tensor.Float32, 4)) {
					t.Errorf("round %d, rank %d: %v", round, m.rank, out)
				}
			}
			if out := m.run(t, []*engine.Op{sum(m, t, "y")}); !bytes.Equal(out[0], number(tensor.Float32, 6)) {
				t.Errorf("round %d, rank %d: %v", round, m.rank, out)
			}
			if err := m.RemoveSet(id); err != nil {
				t.Error(err)
			}
		}
	})
}

// An operation of NCCL hangs, because a rank does not take part. It ends when the job is aborted, with the abort's
// cause.
func TestAbort(t *testing.T) {
	_, ranks := world(t, 2, func(_ int, _ *device, o *Options) { o.Mode = NCCL })
	each(ranks, func(m *member) {
		if out := m.run(t, []*engine.Op{sum(m, t, "x")}); !bytes.Equal(out[0], number(tensor.Float32, 3)) {
			t.Errorf("rank %d: %v", m.rank, out)
		}
	})
	block := make(chan struct{})
	defer close(block)
	ranks[1].device.stuck = true
	ranks[1].device.queue(0, func() { <-block }) // the work that makes rank 1's tensor does not end
	began := time.Now()
	time.AfterFunc(50*time.Millisecond, func() { ranks[0].Abort(errors.New("rank 7 is dead")) })
	each(ranks, func(m *member) {
		en, err := m.Enqueue(sum(m, t, "y"))
		if err == nil {
			if !en.Wait(limit) {
				t.Errorf("rank %d waits for ever", m.rank)
			}
			err = en.Err()
			en.Release()
		}
		if err == nil || !strings.Contains(err.Reason, "rank 7 is dead") {
			t.Errorf("rank %d: %v", m.rank, err)
		}
	})
	t.Logf("after %v", time.Since(began))
}

// An operation that ends on the device because its communicator was aborted has an error.
func TestAbortedIsNotDone(t *testing.T) {
	_, ranks := world(t, 2, func(_ int, _ *device, o *Options) { o.Mode = NCCL })
	each(ranks, func(m *member) { m.run(t, []*engine.Op{sum(m, t, "x")}) })
	s, release := ranks[1].late(t)
	defer release()
	before, hang := ranks[0].device.issued.Load(), make(chan struct{})
	go func() {
		for ranks[0].device.issued.Load() == before {
			time.Sleep(time.Millisecond)
		}
		for _, m := range ranks { // no rank polls before the stream of rank 0 is done
			m.device.hangs.Store(&hang)
		}
		time.Sleep(20 * time.Millisecond)
		ranks[0].devices.Abort(errors.New("rank 7 is dead")) // the network is not aborted yet
		time.Sleep(100 * time.Millisecond)
		ranks[0].device.hangs.Store(nil)
		close(hang)
	}()
	each(ranks, func(m *member) {
		op := sum(m, t, "y")
		if m.rank == 1 {
			op = allreduce(m, t, "y", 0, tensor.Float32, 1, s)
		}
		err := m.outcome(op)
		if err == nil {
			t.Errorf("rank %d: an operation that was aborted ends well", m.rank)
		}
	})
}

// All communicators are aborted together, even while the driver hangs, because NCCL's abort of one may wait for the
// others.
func TestAbortOfSeveral(t *testing.T) {
	machine, ranks := world(t, 2, func(_ int, _ *device, o *Options) { o.Mode = NCCL })
	var sets [2]int
	each(ranks, func(m *member) {
		id, err := m.AddSet(nil)
		if err != nil {
			t.Error(err)
		}
		sets[m.rank] = id
		m.run(t, []*engine.Op{sum(m, t, "x")})
		op := sum(m, t, "x")
		op.Set = id
		m.run(t, []*engine.Op{op})
	})
	block, hang := make(chan struct{}), make(chan struct{})
	defer close(block)
	ranks[1].device.stuck = true
	ranks[1].device.queue(0, func() { <-block })
	first := ranks[0].device
	before := first.issued.Load()
	each(ranks, func(m *member) {
		for _, set := range []int{0, sets[m.rank]} {
			op := sum(m, t, "y")
			op.Set = set
			if en, err := m.Enqueue(op); err != nil {
				t.Error(err)
			} else {
				defer en.Release()
			}
		}
	})
	wait := func(what string, until func() bool) {
		for began := time.Now(); !until(); time.Sleep(time.Millisecond) {
			if time.Since(began) > limit {
				t.Fatal(what)
			}
		}
	}
	wait("both operations are not in flight", func() bool { return first.issued.Load() == before+2 })
	first.hangs.Store(&hang)
	time.Sleep(20 * time.Millisecond)
	ranks[0].devices.Abort(errors.New("rank 7 is dead"))
	wait("a communicator of rank 0 was not aborted", func() bool {
		machine.mu.Lock()
		defer machine.mu.Unlock()
		return machine.live <= 2
	})
	first.hangs.Store(nil)
	close(hang)
	ranks[0].Abort(errors.New("rank 7 is dead"))
}

// If an operation has ended for the program and fails on the device later, the job ends, also without another
// operation. Nobody watches an operation that has ended on the device.
func TestFailureAfterTheEnd(t *testing.T) {
	causes := make(chan error, 1)
	machine, ranks := world(t, 1, func(_ int, _ *device, o *Options) {
		o.Mode, o.Async, o.Abort = NCCL, true, func(cause error) { causes <- cause }
	})
	m, block := ranks[0], make(chan struct{})
	m.device.queue(0, func() { <-block }) // the work that makes the first tensor
	for i := range 2 {
		en, err := m.Enqueue(sum(m, t, fmt.Sprint("x", i)))
		if err != nil || !en.Wait(limit) || en.Err() != nil {
			t.Fatal(err, en.Err())
		}
		en.Release()
	}
	machine.mu.Lock()
	machine.fails = errors.New("a link of the network is down")
	machine.mu.Unlock()
	select {
	case cause := <-causes:
		if text := cause.Error(); !strings.Contains(text, "on rank 0: a link") {
			t.Error(text)
		}
	case <-time.After(limit):
		t.Error("nobody has noticed the failure")
	}
	machine.mu.Lock()
	machine.fails = nil
	machine.mu.Unlock()
	close(block)
	m.run(t, []*engine.Op{sum(m, t, "y")})
	watching := func() bool {
		w := &m.devices.watch
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.asking || w.timing.Load()
	}
	for began := time.Now(); watching(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatal("a lane is watched for ever")
		}
	}
	m.devices.Abort(errors.New("a link of the network was down"))
}

// Between a failure on the device and the abort that follows, nothing is settled.
func TestFailureIsNotSettled(t *testing.T) {
	var devices *Devices
	aborts := make(chan error, 1)
	machine, ranks := world(t, 1, func(_ int, _ *device, o *Options) {
		o.Mode, o.Async, o.Abort = NCCL, true, func(cause error) {
			if over, err := devices.Settle(0); over {
				t.Errorf("Settle before the abort: %v", err)
			}
			if over, err := devices.Settled(); over {
				t.Errorf("Settled before the abort: %v", err)
			}
			devices.Abort(cause)
			aborts <- cause
		}
	})
	m, block := ranks[0], make(chan struct{})
	defer close(block)
	devices = m.devices
	m.device.queue(0, func() { <-block })
	en, err := m.Enqueue(sum(m, t, "x"))
	if err != nil || !en.Wait(limit) || en.Err() != nil {
		t.Fatal(err, en.Err())
	}
	en.Release()
	machine.mu.Lock()
	machine.fails = errors.New("a link of the network is down")
	machine.mu.Unlock()
	select {
	case cause := <-aborts:
		if over, err := devices.Settle(-1); !over || err != cause {
			t.Errorf("Settle after the abort: %v, %v", over, err)
		}
	case <-time.After(limit):
		t.Error("nobody has noticed the failure")
	}
}

// A lane that ends early is not settled, nor is an operation that the device has while the job is aborted.
func TestUnfinishedIsNotSettled(t *testing.T) {
	for name, ends := range map[string]func(*Devices){
		"close": func(d *Devices) {
			for l := range d.lanes {
				d.watch.remove(l)
			}
		},
		"abort": func(d *Devices) { d.Abort(errors.New("rank 7 is dead")) },
	} {
		t.Run(name, func(t *testing.T) {
			_, ranks := world(t, 1, func(_ int, _ *device, o *Options) {
				o.Mode, o.Async, o.Abort = NCCL, true, func(error) {}
			})
			m, block := ranks[0], make(chan struct{})
			m.device.queue(0, func() { <-block })
			en, err := m.Enqueue(sum(m, t, "x"))
			if err != nil || !en.Wait(limit) || en.Err() != nil {
				t.Fatal(err, en.Err())
			}
			en.Release()
			ends(m.devices)
			close(block)
			if over, err := m.devices.Settle(0); over && err == nil {
				t.Error("it is settled")
			}
			m.devices.Abort(errors.New("rank 7 is dead"))
			if over, err := m.devices.Settle(-1); !over || err == nil {
				t.Errorf("after the abort: %v, %v", over, err)
			}
		})
	}
}

// What the device had done before the job failed stays.
func TestSettledBeforeTheAbort(t *testing.T) {
	_, ranks := world(t, 1, func(_ int, _ *device, o *Options) {
		o.Mode, o.Async, o.Abort = NCCL, true, func(error) {}
	})
	m := ranks[0]
	m.run(t, []*engine.Op{sum(m, t, "x")})
	for range 2 {
		if over, err := m.devices.Settle(-1); !over || err != nil {
			t.Errorf("%v, %v", over, err)
		}
		m.devices.Abort(errors.New("rank 7 is dead"))
	}
}

// An abort that comes while a communicator is made ends that communicator.
func TestAbortWhileMaking(t *testing.T) {
	_, ranks := world(t, 2, func(_ int, _ *device, o *Options) { o.Mode = NCCL })
	ranks[0].device.making = func() { ranks[0].devices.Abort(errors.New("rank 7 is dead")) }
	each(ranks, func(m *member) {
		err := m.outcome(sum(m, t, "x"))
		if err == nil || !strings.Contains(err.Reason, "rank 7 is dead") {
			t.Errorf("rank %d: %v", m.rank, err)
		}
	})
}

// late makes a stream of the program whose work waits until release.
func (m *member) late(t *testing.T) (s cuda.Stream, release func()) {
	s, err := m.device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	block := make(chan struct{})
	m.device.queue(s, func() { <-block })
	return s, sync.OnceFunc(func() {
		close(block)
		m.device.FreeStream(s)
	})
}

// allreduce makes a sum of n numbers that the program's stream makes. NCCL does not know int16.
func allreduce(m *member, t *testing.T, name string, set int, dt tensor.DType, n int, s cuda.Stream) *engine.Op {
	in := bytes.Repeat(number(dt, m.rank+1), n)
	return m.onStream(t, &engine.Op{Type: operation.Allreduce, DType: dt, ReduceOp: tensor.Sum, Name: name, Set: set,
		Shape: tensor.Shape{int64(n)}, Prescale: 1, Postscale: 1, In: in, Out: in}, s)
}

// No driver waits for a busy device. Other operations go on while memory grows or is freed, and while process sets end.
func TestNoDriverWaitsForTheDevice(t *testing.T) {
	_, ranks := world(t, 1, func(_ int, _ *device, o *Options) { o.Async = true })
	m := ranks[0]
	m.run(t, []*engine.Op{sum(m, t, "first")})
	s, release := m.late(t)
	defer release()
	en, err := m.Enqueue(allreduce(m, t, "late", 0, tensor.Float32, 1, s))
	if err != nil || !en.Wait(limit) || en.Err() != nil {
		t.Fatal(err, en.Err())
	}
	en.Release()
	set, failed := m.AddSet(nil)
	if failed != nil {
		t.Fatal(failed)
	}
	m.run(t, []*engine.Op{allreduce(m, t, "made and tried", set, tensor.Float32, 1, 0)})
	for i := range 3 { // each needs more memory than the one before, in several chunks
		m.run(t, []*engine.Op{allreduce(m, t, "staged", set, tensor.Int16, leastChunk<<i, 0),
			allreduce(m, t, "staged, too", set, tensor.Int16, leastChunk<<i, 0)})
	}
	m.run(t, []*engine.Op{m.onDevice(t, &engine.Op{Type: operation.Allgather, DType: tensor.Uint8, Name: "all",
		Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: []byte{1}})}) // and frees the output
	if err := m.RemoveSet(set); err != nil {
		t.Error(err)
	}
	m.run(t, []*engine.Op{sum(m, t, "last")})
}

// The deadline of a trial does not count the time in which the device is busy with another set's operation.
func TestTrialOnABusyDevice(t *testing.T) {
	const deadline = time.Second
	_, ranks := world(t, 2, func(_ int, _ *device, o *Options) { o.Async, o.Deadline = true, deadline })
	each(ranks, func(m *member) {
		set, err := m.AddSet(nil)
		if err != nil {
			t.Error(err)
			return
		}
		m.run(t, []*engine.Op{sum(m, t, "first")})
		s, release := m.late(t)
		time.AfterFunc(2*deadline, release)
		late := allreduce(m, t, "late", 0, tensor.Float32, 1, s)
		en, failed := m.Enqueue(late)
		if failed != nil || !en.Wait(limit) {
			t.Error(failed)
			return
		}
		defer en.Release()
		m.run(t, []*engine.Op{allreduce(m, t, "tried", set, tensor.Float32, 1, 0)})
		if m.log.Len() > 0 {
			t.Errorf("rank %d logs %q", m.rank, m.log)
		}
	})
}

// The memory of a lane is freed once the stream is empty, also while NCCL's abort still runs.
func TestSlowAbort(t *testing.T) {
	_, ranks := world(t, 2, nil)
	each(ranks, func(m *member) { m.run(t, []*engine.Op{sum(m, t, "x")}) }) // the trial allocates memory
	slow := make(chan struct{})
	defer close(slow)
	for _, m := range ranks {
		m.device.ending = func() { <-slow }
	}
	ranks[0].Abort(errors.New("rank 7 is dead"))
	each(ranks, func(m *member) {
		m.Shutdown(limit)
		m.device.mu.Lock()
		defer m.device.mu.Unlock()
		for _, size := range m.device.pieces {
			if size >= leastChunk {
				t.Errorf("rank %d leaks %d bytes", m.rank, size)
			}
		}
		if strings.Contains(m.log.String(), "still works") {
			t.Errorf("rank %d logs %q", m.rank, m.log)
		}
	})
}

// Tensors that the engine cannot carry are refused.
func TestRefusals(t *testing.T) {
	_, ranks := world(t, 1, nil)
	m := ranks[0]
	if _, err := m.devices.Tensor(0, 0); err != nil {
		t.Error(err)
	}
	if _, err := m.devices.Tensor(1, 0); err == nil || !strings.Contains(err.Error(), "on device 0") {
		t.Errorf("on another device: %v", err)
	}
	m.device.graphs = true
	if _, err := m.devices.Tensor(0, cuda.Stream(0)); err == nil || !strings.Contains(err.Error(), "CUDA graph") {
		t.Errorf("in a graph: %v", err)
	}
}
