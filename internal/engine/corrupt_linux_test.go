package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/tensor"
	"github.com/gorovod/gorovod/internal/transport/shm"
)

// Words of the shared segment change under ranks that work. What they compute is worth
// nothing then, and they may wait for what does not come until they are aborted; but they
// end, no rank reads or writes beyond its memory, and no check is left to a panic.
func TestCorruptSegment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("GOROVOD_TEST_SEED"); text != "" {
		fmt.Sscan(text, &seed)
	}
	t.Logf("GOROVOD_TEST_SEED=%d", seed)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for i := range uint64(rounds) {
		corruptJob(t, rand.New(rand.NewPCG(seed, i)), fmt.Sprintf("seed %d, round %d", seed, i))
	}
}

// The ranks of a damaged job that are stuck are aborted after this, as the check for
// stalls or a heartbeat does.
const stuckAfter = 300 * time.Millisecond

func corruptJob(t *testing.T, rng *rand.Rand, what string) {
	const size = 3
	engines, segment := shmWorld(t, size, what)
	defer segment.Close()
	quit := make(chan struct{})
	program := rng.Uint64()
	var damage, jobs sync.WaitGroup
	damage.Go(func() { flip(t, segment, rng, quit) }) // rng is its own from here on
	for r, e := range engines {
		jobs.Go(func() {
			defer e.Shutdown(limit)
			runDamaged(t, e, r, rand.New(rand.NewPCG(program, 0)), what)
		})
	}
	stuck := time.AfterFunc(stuckAfter, func() {
		for _, e := range engines {
			e.Abort(errors.New("stuck"))
		}
	})
	ended := make(chan struct{})
	go func() { jobs.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(limit):
		t.Fatalf("%s: the job has not ended", what)
	}
	stuck.Stop()
	close(quit)
	damage.Wait()
}

// shmWorld makes a world over shared memory, and opens its segment as a file.
func shmWorld(t *testing.T, size int, what string) (engines []*Engine, segment *os.File) {
	t.Helper()
	networks, errs := make([]*shm.Network, size), make([]error, size)
	var fd atomic.Int64
	var opening sync.WaitGroup
	for r := range size {
		opening.Go(func() {
			networks[r], errs[r] = shm.Open(t.Context(), shm.Config{Rank: r, Size: size, Key: []byte("secret"), Job: what, Timeout: limit, Slots: 16,
				TrackFD: func(n int, open bool) {
					if open && r == 0 {
						fd.Store(int64(n))
					}
				}})
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	segment, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd.Load()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	engines = make([]*Engine, size)
	for r, n := range networks {
		opening.Go(func() {
			engines[r], errs[r] = New(n, Options{Rank: r, Size: size, FusionThreshold: 1 << 16, CacheCapacity: 16})
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return engines, segment
}

// flip changes words of what is in use of a segment, mostly such as hold something, until
// quit is closed.
func flip(t *testing.T, segment *os.File, rng *rand.Rand, quit chan struct{}) {
	var st unix.Stat_t
	if err := unix.Fstat(int(segment.Fd()), &st); err != nil {
		t.Error(err)
		return
	}
	words := st.Blocks * 512 / 8 // header and first lane, which follow one another
	var word [8]byte
	for {
		select {
		case <-quit:
			return
		case <-time.After(time.Duration(rng.IntN(3000)) * time.Microsecond):
		}
		near := words
		if rng.IntN(4) > 0 {
			near = words / int64(1+rng.IntN(200)) // registers and boards lie in front of the staging
		}
		at := 8 * rng.Int64N(near)
		for range 4000 {
			if n, _ := segment.ReadAt(word[:], at); n < len(word) || binary.NativeEndian.Uint64(word[:]) != 0 {
				break
			}
			at = 8 * rng.Int64N(near)
		}
		v := binary.NativeEndian.Uint64(word[:])
		switch rng.IntN(4) {
		case 0:
			v ^= 1 << rng.IntN(64)
		case 1:
			v += uint64(rng.IntN(17)) - 8
		case 2:
			v = rng.Uint64() >> rng.IntN(64)
		case 3:
			v ^= uint64(rng.IntN(256)) << (8 * rng.IntN(8))
		}
		binary.NativeEndian.PutUint64(word[:], v)
		if _, err := segment.WriteAt(word[:], at); err != nil {
			t.Error(err)
			return
		}
	}
}

// runDamaged runs operations, the same on all ranks, until one fails.
func runDamaged(t *testing.T, e *Engine, rank int, rng *rand.Rand, what string) {
	for i := range 400 {
		op, in, memory := damagedOp(rng, i, rank, t, what)
		before := bytes.Clone(in)
		err := doDamaged(t, e, op, what)
		for _, g := range memory() {
			if !g.whole() {
				t.Errorf("%s: rank %d: %v %q wrote beyond its output", what, rank, op.Type, op.Name)
			}
		}
		if !bytes.Equal(before, in) {
			t.Errorf("%s: rank %d: %v %q changed its input", what, rank, op.Type, op.Name)
		}
		if err != nil {
			if strings.Contains(err.Reason, "panic") {
				t.Errorf("%s: rank %d: %v", what, rank, err)
			}
			return
		}
	}
}

func doDamaged(t *testing.T, e *Engine, op *Op, what string) *Error {
	en, err := e.Enqueue(op)
	if err != nil {
		return err
	}
	defer en.Release()
	if !e.Wait(en, limit) {
		t.Errorf("%s: %q does not end", what, op.Name)
		return errorf(UnknownError, "time-out")
	}
	return en.Err()
}

// fenced is memory with bytes around it that nobody may write.
type fenced []byte

const fence = 64

func newFenced(n int) fenced { return bytes.Repeat([]byte{0xa5}, n+2*fence) }

func (f fenced) inside() []byte { return f[fence : len(f)-fence : len(f)-fence] }

func (f fenced) whole() bool {
	post := bytes.Repeat([]byte{0xa5}, fence)
	return bytes.Equal(f[:fence], post) && bytes.Equal(f[len(f)-fence:], post)
}

// damagedOp is an operation with its input, and the memory that it may write.
func damagedOp(rng *rand.Rand, i, rank int, t *testing.T, what string) (op *Op, in []byte, memory func() []fenced) {
	rows := 3 * (1 + rng.Int64N(200)) * int64(1+rng.IntN(50)*rng.IntN(2))
	in = make([]byte, 8*rows)
	for k := range in {
		in[k] = byte(k + rank)
	}
	var got []fenced
	op = &Op{DType: tensor.Float32, ReduceOp: tensor.Sum, Prescale: 1, Postscale: 1, Shape: tensor.Shape{rows, 2}, In: in}
	sized := func() {
		f := newFenced(len(in))
		got, op.Out = append(got, f), f.inside()
	}
	open := func() {
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) {
			if n > 1<<24 {
				return nil, errors.New("more than this test has")
			}
			f := newFenced(n)
			got = append(got, f)
			return f.inside(), nil
		}
	}
	kinds := []negotiate.RequestType{negotiate.Allreduce, negotiate.Allreduce, negotiate.Adasum, negotiate.Broadcast, negotiate.Allgather, negotiate.Alltoall, negotiate.Reducescatter}
	op.Type = kinds[rng.IntN(len(kinds))]
	switch op.Type {
	case negotiate.Allgather, negotiate.Alltoall, negotiate.Reducescatter:
		open()
	default:
		sized()
	}
	op.Name = fmt.Sprintf("%v.%d.%d", op.Type, rows, i*rng.IntN(2)%7)
	return op, in, func() []fenced { return got }
}
