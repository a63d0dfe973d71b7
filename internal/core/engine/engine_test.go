package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// limit bounds every wait of these tests: a hang is a failure that says where.
const limit = 30 * time.Second

// newWorld makes the engines of a world in this process and ends them with the test.
func newWorld(t testing.TB, size int, shared bool, change func(*Options)) []*Engine {
	t.Helper()
	engines := makeWorld(t, size, shared, change)
	t.Cleanup(func() { each(engines, func(r int, e *Engine) { e.Shutdown(limit) }) })
	return engines
}

// inWorlds runs a test in worlds of these sizes, over shared memory, over messages and on two hosts.
func inWorlds(t *testing.T, sizes []int, test func(t *testing.T, engines []*Engine)) {
	for _, size := range sizes {
		for _, over := range []string{"shared memory", "messages"} {
			t.Run(fmt.Sprintf("%d ranks over %s", size, over), func(t *testing.T) {
				test(t, newWorld(t, size, over == "shared memory", nil))
			})
		}
		t.Run(fmt.Sprintf("%d ranks on two hosts", size), func(t *testing.T) {
			hosts := make([][]int, min(2, size))
			for r := range size {
				hosts[r%len(hosts)] = append(hosts[r%len(hosts)], r)
			}
			test(t, newHosts(t, hosts, nil))
		})
	}
}

// makeWorld makes the engines of a world in this process.
func makeWorld(t interface{ Fatal(...any) }, size int, shared bool, change func(*Options)) []*Engine {
	o := Options{Size: size, FusionThreshold: 1 << 20, CacheCapacity: 64}
	if change != nil {
		change(&o)
	}
	engines := make([]*Engine, size)
	for r, n := range inproc.NewWorld(size, inproc.Options{Shared: shared, Cards: max(1, o.CacheCapacity),
		ChunkBytes: 4096}) {
		o := o
		o.Rank = r
		e, err := New(n, o)
		if err != nil {
			t.Fatal(err)
		}
		engines[r] = e
	}
	return engines
}

func each(engines []*Engine, f func(r int, e *Engine)) {
	var wg sync.WaitGroup
	for r, e := range engines {
		wg.Go(func() { f(r, e) })
	}
	wg.Wait()
}

func floats(v ...float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.NativeEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func float(b []byte, i int) float32 {
	return math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
}

// sum describes an in-place float32 sum.
func sum(name string, data []byte) *Op {
	return &Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum, Name: name,
		Shape: tensor.Shape{int64(len(data) / 4)}, Prescale: 1, Postscale: 1, In: data, Out: data}
}

// do enqueues, waits and releases.
func do(t testing.TB, e *Engine, op *Op) *Error {
	en, err := e.Enqueue(op)
	if err != nil {
		return err
	}
	defer en.Release()
	if !e.Wait(en, limit) {
		t.Errorf("rank %d: %q is not done after %v", e.opts.Rank, en.Name(), limit)
		return errorf(UnknownError, "time-out")
	}
	return en.Err()
}

// Threads of every rank submit tensors in any order, asynchronously, with fusion, in several rounds. Every tensor gets
// its own sum.
func TestManyTensorsInAnyOrder(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		name      string
		shared    bool
		threshold int64
	}{
		{"unfused over shared memory", true, 0},
		{"few fused over shared memory", true, 1000},
		{"all fused over shared memory", true, 1 << 20},
		{"unfused over messages", false, 0},
		{"few fused over messages", false, 1000},
		{"all fused over messages", false, 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines := newWorld(t, 4, c.shared, func(o *Options) {
				o.FusionThreshold, o.CacheCapacity = c.threshold, 40
			})
			each(engines, func(r int, e *Engine) { submitFromThreads(t, e, r, seed) })
			for r, e := range engines {
				if n := e.Pending(); n != 0 {
					t.Errorf("rank %d has %d operations left", r, n)
				}
			}
		})
	}
}

// submitFromThreads has three threads submit tensors of their own on one of four ranks.
func submitFromThreads(t *testing.T, e *Engine, rank int, seed int64) {
	const tensors, threads, rounds = 60, 3, 6
	var wg sync.WaitGroup
	for thread := range threads {
		wg.Go(func() {
			rnd := rand.New(rand.NewSource(seed + int64(rank*threads+thread)))
			for range rounds {
				if !submitShuffled(t, e, rnd, rank, thread, tensors) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// submitShuffled submits tensors in a random order and waits for them in another.
// Tensor i of a rank has 1+3i elements; element k is i+k+rank+1000*thread.
func submitShuffled(t *testing.T, e *Engine, rnd *rand.Rand, rank, thread, tensors int) bool {
	data := make([][]byte, tensors)
	handles := make([]*Entry, tensors)
	for _, i := range rnd.Perm(tensors) {
		data[i] = countUp(1+i*3, float32(i+rank+1000*thread), 1)
		en, err := e.Enqueue(sum(fmt.Sprintf("t%d.%d", thread, i), data[i]))
		if err != nil {
			t.Errorf("enqueue: %v", err)
			return false
		}
		handles[i] = en
	}
	for _, i := range rnd.Perm(tensors) {
		if err := finish(t, e, handles[i]); err != nil {
			t.Errorf("%q: %v", handles[i].Name(), err)
			return false
		}
		handles[i].Release()
		if want := countUp(1+i*3, float32(4*(i+1000*thread)+6), 4); !bytes.Equal(data[i], want) {
			t.Errorf("tensor %d: %v, want %v", i, data[i], want)
			return false
		}
	}
	return true
}

// countUp is n elements: first, first+step, first+2*step and so on.
func countUp(n int, first, step float32) []byte {
	var b []byte
	for k := range n {
		b = append(b, floats(first+float32(k)*step)...)
	}
	return b
}

// A mismatch is an error on every rank, and the engine goes on.
func TestMismatchIsAnErrorEverywhere(t *testing.T) {
	engines := newWorld(t, 3, true, nil)
	each(engines, func(r int, e *Engine) {
		for range 3 {
			err := do(t, e, sum("x", make([]byte, 4*(1+r/2))))
			if err == nil || err.Code != PreconditionError || !strings.HasPrefix(err.Reason,
				"Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [1], but another rank sent a "+
					"tensor of shape [2].") {
				t.Errorf("rank %d: %v", r, err)
			}
			if err := do(t, e, sum("x", make([]byte, 4))); err != nil {
				t.Errorf("rank %d afterwards: %v", r, err)
			}
		}
	})
}

func TestRefusedAtOnce(t *testing.T) {
	e := newWorld(t, 2, true, nil)[0]
	for name, c := range map[string]struct {
		change func(*Op)
		want   string
	}{
		"root": {func(o *Op) { o.Type, o.Root = operation.Broadcast, 2 },
			"broadcast received invalid root rank 2 for provided process set"},
		"dtype":  {func(o *Op) { o.DType = 99 }, "unknown data type"},
		"op":     {func(o *Op) { o.ReduceOp = 77 }, "unknown reduce operation"},
		"set":    {func(o *Op) { o.Set = 3 }, "Process set provided does not exist"},
		"bytes":  {func(o *Op) { o.In = o.In[:4] }, "bytes of input"},
		"name":   {func(o *Op) { o.Name = strings.Repeat("n", negotiate.MaxName+1) }, "the tensor name has"},
		"shape":  {func(o *Op) { o.Shape = tensor.Shape{-1} }, "negative"},
		"adasum": {func(o *Op) { o.ReduceOp = tensor.Adasum }, "Allreduce of tensor"},
		"type":   {func(o *Op) { o.Type = 77 }, "is not an operation"},
		"splits": {func(o *Op) { o.Type, o.Shape, o.Splits = operation.Alltoall, tensor.Shape{2}, []int32{1} },
			"1 splits for 2 processes"},
		"sum": {func(o *Op) { o.Type, o.Splits = operation.Alltoall, []int32{1, 2} },
			"sum of the splits 3 is greater than the first dimension 2"},
		"less": {func(o *Op) { o.Type, o.Splits = operation.Alltoall, []int32{-1, 2} }, "negative"},
		"odd": {func(o *Op) { o.Type, o.Shape, o.In = operation.Alltoall, tensor.Shape{3}, make([]byte, 12) },
			"not divisible"},
		"adasum of rows": {func(o *Op) { o.Type, o.ReduceOp = operation.Reducescatter, tensor.Adasum },
			"only supports AVERAGE, SUM, MIN"},
		"bits of floats": {func(o *Op) { o.ReduceOp = tensor.BitXor }, "there is no bxor of float32; it takes uint8"},
		"average of bools": {func(o *Op) {
			o.DType, o.ReduceOp, o.Shape = tensor.Bool, tensor.Average, tensor.Shape{8}
		}, "there is no average of bool; it takes uint8"},
		"int": {func(o *Op) { o.Type, o.DType = operation.Adasum, tensor.Int32 }, "floating-point"},
	} {
		op := sum("x", make([]byte, 8))
		c.change(op)
		if _, err := e.Enqueue(op); err == nil || err.Code != InvalidArgument && !strings.HasPrefix(name, "adasum") ||
			!strings.Contains(err.Reason, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if waits(e) != 0 {
		t.Error("something is pending")
	}
}

func TestDuplicateName(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	en, err := engines[0].Enqueue(sum("x", make([]byte, 4)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engines[0].Enqueue(sum("x", make([]byte, 4))); err == nil || err.Code != InvalidArgument ||
		!strings.Contains(err.Reason, "Duplicate tensor name") {
		t.Errorf("second of the same name: %v", err)
	}
	if err := do(t, engines[1], sum("x", make([]byte, 4))); err != nil {
		t.Error(err)
	}
	if !engines[0].Wait(en, limit) || en.Err() != nil {
		t.Error("the first is not done")
	}
	en.Release()
}

// Wait returns at its time-out; the operation goes on and can be waited for again.
func TestWaitTimesOut(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	data := floats(1)
	op := sum("late", data)
	op.WillWait = true
	en, err := engines[0].Enqueue(op)
	if err != nil {
		t.Fatal(err)
	}
	if engines[0].Wait(en, 10*time.Millisecond) {
		t.Fatal("done without the other rank")
	}
	if err := do(t, engines[1], sum("late", floats(2))); err != nil {
		t.Fatal(err)
	}
	if !engines[0].Wait(en, limit) || en.Err() != nil || float(data, 0) != 3 {
		t.Errorf("afterwards: %v %v", en.Err(), float(data, 0))
	}
	en.Release()
}

// The background goroutine carries an operation that nobody waits for. Its callback may enqueue.
func TestCallbackMayEnqueue(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	done := make(chan *Error, 2*len(engines))
	for _, e := range engines {
		op := sum("first", floats(1))
		op.Done = func(*Entry) {
			second := sum("second", floats(2))
			second.Done = func(en *Entry) { done <- en.Err() }
			en, err := e.Enqueue(second)
			if err != nil {
				done <- err
				return
			}
			en.Release()
		}
		en, err := e.Enqueue(op)
		if err != nil {
			t.Fatal(err)
		}
		en.Release()
	}
	for range engines {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(limit):
			t.Fatal("no callback")
		}
	}
}

func TestReadyHoldsBack(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	var ready sync.Map
	mine := floats(0)
	op := sum("x", mine)
	op.Ready = func() bool { _, ok := ready.Load("x"); return ok }
	en, err := engines[0].Enqueue(op)
	if err != nil {
		t.Fatal(err)
	}
	other, err := engines[1].Enqueue(sum("x", floats(2)))
	if err != nil {
		t.Fatal(err)
	}
	if engines[1].Wait(other, 5*time.Millisecond) {
		t.Fatal("executed although rank 0's input was not ready")
	}
	copy(mine, floats(40))
	ready.Store("x", true)
	if !engines[0].Wait(en, limit) || !engines[1].Wait(other, limit) || float(mine, 0) != 42 {
		t.Errorf("sum %v", float(mine, 0))
	}
	en.Release()
	other.Release()
}

// The shutdown of one rank fails the operations that it has not submitted, on the others, with a reason that names it.
func TestShutdownFailsTheOthers(t *testing.T) {
	for _, shared := range []bool{true, false} {
		engines := newWorld(t, 3, shared, nil)
		each(engines, func(r int, e *Engine) {
			if err := do(t, e, sum("all", floats(1))); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if r == 1 {
				e.Shutdown(limit)
				if _, err := e.Enqueue(sum("after", floats(1))); err == nil || !strings.Contains(err.Reason,
					"Horovod has been shut down") {
					t.Errorf("after own shutdown: %v", err)
				}
				return
			}
			err := do(t, e, sum("more", floats(1)))
			if err == nil || err.Code != UnknownError || !strings.Contains(err.Reason, "Horovod has been shut down") ||
				!strings.Contains(err.Reason, "rank 1 has shut down") {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
}

// Operations that all ranks have submitted before one leaves are still executed.
func TestShutdownFinishesWhatIsAgreed(t *testing.T) {
	const n = 50
	engines := newWorld(t, 4, true, nil)
	var submitted sync.WaitGroup
	submitted.Add(len(engines))
	each(engines, func(r int, e *Engine) {
		var all []*Entry
		data := make([][]byte, n)
		for i := range n {
			data[i] = floats(float32(i))
			en, err := e.Enqueue(sum(fmt.Sprint(i), data[i]))
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				break
			}
			all = append(all, en)
		}
		submitted.Done()
		submitted.Wait()
		for i, en := range all {
			if !e.Wait(en, limit) || en.Err() != nil || float(data[i], 0) != float32(4*i) {
				t.Errorf("rank %d tensor %d: %v", r, i, en.Err())
			}
			en.Release()
		}
		e.Shutdown(limit)
	})
}

// An abort fails the pending operations and later ones with the same cause.
func TestAbort(t *testing.T) {
	for _, shared := range []bool{true, false} {
		engines := newWorld(t, 3, shared, nil)
		cause := errors.New("rank 2 on host h (pid 7) was killed by signal 9 (SIGKILL)")
		each(engines, func(r int, e *Engine) {
			if r == 2 {
				for _, other := range engines[:2] {
					for len(other.Waiting()) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				e.Abort(cause)
				return
			}
			for _, name := range []string{"pending", "later"} {
				if err := do(t, e, sum(name, make([]byte, 1<<16))); err == nil || err.Code != UnknownError ||
					!strings.HasPrefix(err.Reason, cause.Error()+" [") ||
					// later operations have the same words
					!strings.HasSuffix(err.Reason, `: ALLREDUCE "pending" waited for other ranks]`) {
					t.Errorf("rank %d %s: %v", r, name, err)
				}
			}
		})
	}
}

// A panic in a package below the engine becomes an abort with its cause, on every rank.
func TestPanicBecomesAbort(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		op := &Op{Type: operation.Allgather, DType: tensor.Uint8, Name: "g", Shape: tensor.Shape{1}, Prescale: 1,
			Postscale: 1, In: []byte{1},
			Alloc: func(_ tensor.Shape, n int) ([]byte, error) {
				if r == 1 {
					panic("no such luck")
				}
				return make([]byte, n), nil
			}}
		if err := do(t, e, op); err == nil || !strings.Contains(err.Reason,
			"panic in the engine of rank 1: no such luck") {
			t.Errorf("rank %d: %v", r, err)
		}
	})
}

// An idle engine's driver does not wake.
func TestIdleEngineSleeps(t *testing.T) {
	engines := newWorld(t, 2, true, nil)
	each(engines, func(r int, e *Engine) {
		if err := do(t, e, sum("x", floats(1))); err != nil {
			t.Error(err)
		}
	})
	before := engines[0].Counters().WakeUps.Load()
	time.Sleep(50 * time.Millisecond)
	if after := engines[0].Counters().WakeUps.Load(); after != before {
		t.Errorf("%d wake-ups while idle", after-before)
	}
}
