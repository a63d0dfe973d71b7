package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
	"github.com/gorovod/gorovod/internal/core/transport/shm"
)

// Words of the shared segment change under ranks that work. Then their results are worth nothing, and the ranks may
// wait for an event that does not come until they are aborted. But they end, no rank reads or writes beyond its memory,
// and a check finds each bad value before it causes a panic.
func TestCorruptSegment(t *testing.T) {
	seed := corruptionSeed(t)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for i := range uint64(rounds) {
		corruptJob(t, rand.New(rand.NewPCG(seed, i)), fmt.Sprintf("seed %d, round %d", seed, i))
	}
}

func corruptionSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("GOROVOD_TEST_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("GOROVOD_TEST_SEED=%d", seed)
	return seed
}

// stuckAfter is when the ranks of a damaged job that are stuck are aborted, as the check for stalls or a heartbeat
// would do.
const stuckAfter = 300 * time.Millisecond

func corruptJob(t *testing.T, rng *rand.Rand, what string) {
	const size = 3
	engines, segment := shmWorld(t, size, what)
	defer segment.Close()
	quit := make(chan struct{})
	program := rng.Uint64()
	var damage sync.WaitGroup
	damage.Go(func() { flip(t, segment, rng, quit) }) // from here on flip alone uses rng
	damagedJob(t, engines, program, what)
	close(quit)
	damage.Wait()
}

// damagedJob runs a program of operations until all ranks have ended.
func damagedJob(t *testing.T, engines []*Engine, program uint64, what string) {
	var jobs sync.WaitGroup
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
	defer stuck.Stop()
	ended := make(chan struct{})
	go func() { jobs.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(limit):
		t.Fatalf("%s: the job has not ended", what)
	}
}

// shmWorld makes a world over shared memory, and opens its segment as a file.
func shmWorld(t *testing.T, size int, what string) (engines []*Engine, segment *os.File) {
	t.Helper()
	networks, errs := make([]*shm.Network, size), make([]error, size)
	var fd atomic.Int64
	var opening sync.WaitGroup
	for r := range size {
		opening.Go(func() {
			networks[r], errs[r] = shm.Open(t.Context(), shm.Config{Rank: r, Size: size, Key: []byte("secret"),
				Job: what, Timeout: limit, Cards: 16,
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

// flip changes words in the used part of a segment, mostly words that hold something, until quit is closed.
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
	op = &Op{DType: tensor.Float32, ReduceOp: tensor.Sum, Prescale: 1, Postscale: 1, Shape: tensor.Shape{rows,
		2}, In: in}
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
	kinds := []operation.Kind{operation.Allreduce, operation.Allreduce, operation.Adasum, operation.Broadcast,
		operation.Allgather, operation.Alltoall, operation.Reducescatter}
	op.Type = kinds[rng.IntN(len(kinds))]
	switch op.Type {
	case operation.Allgather, operation.Alltoall, operation.Reducescatter:
		open()
	default:
		sized()
	}
	op.Name = fmt.Sprintf("%v.%d.%d", op.Type, rows, i*rng.IntN(2)%7)
	return op, in, func() []fenced { return got }
}

// scrambler is a network on which some messages of the board change on their way.
type scrambler struct {
	transport.Network
	rng *rand.Rand
}

func (n *scrambler) OpenLane(id int, incarnation uint32, members []int) (*transport.Lane, error) {
	l, err := n.Network.OpenLane(id, incarnation, members)
	if err == nil {
		b := &scrambledBoard{Board: l.Board, rng: n.rng}
		l.Board = b
		if l.Coordination != nil {
			l.Coordination = &scrambledCoordination{l.Coordination, b}
		}
	}
	return l, err
}

type scrambledBoard struct {
	transport.Board
	mu  sync.Mutex // of rng: several goroutines of a rank may post
	rng *rand.Rand
}

type scrambledCoordination struct {
	transport.Coordination
	board *scrambledBoard
}

func (c *scrambledCoordination) Publish(responses ...[]byte) int {
	scrambled := make([][]byte, len(responses))
	for i, p := range responses {
		scrambled[i] = c.board.scramble(p, func(p []byte) bool { return new(negotiate.Response).Decode(p) == nil })
	}
	return c.Coordination.Publish(scrambled...)
}

func (b *scrambledBoard) Post(p []byte) bool {
	return b.Board.Post(b.scramble(p, func(p []byte) bool { return new(negotiate.Request).Decode(p) == nil }))
}

// scramble changes one message in eight, if it can, in such a way that it can still be decoded.
func (b *scrambledBoard) scramble(p []byte, decodes func([]byte) bool) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rng.IntN(8) > 0 {
		return p
	}
	for range 50 {
		q := bytes.Clone(p)
		for range 1 + b.rng.IntN(3) {
			at := b.rng.IntN(len(q))
			switch b.rng.IntN(3) {
			case 0:
				q[at] = byte(b.rng.IntN(256))
			case 1:
				q[at] ^= 1 << b.rng.IntN(8)
			case 2: // a number becomes longer
				q = slices.Insert(q, at, 0x80|byte(b.rng.IntN(128)), 0xff)
			}
		}
		if decodes(q) {
			return q
		}
	}
	return p
}

// If a member or a coordinator says something else than it means, the job ends, or nobody notices. No rank believes a
// size that its memory does not hold.
func TestScrambledMessages(t *testing.T) {
	seed := corruptionSeed(t)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for i := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, i))
		engines := make([]*Engine, 3)
		for r, n := range inproc.NewWorld(len(engines), inproc.Options{Shared: i%2 == 0, Cards: 16, ChunkBytes: 4096}) {
			e, err := New(&scrambler{n, rand.New(rand.NewPCG(rng.Uint64(), 0))}, Options{Rank: r, Size: len(engines),
				FusionThreshold: 1 << 16, CacheCapacity: 16})
			if err != nil {
				t.Fatal(err)
			}
			engines[r] = e
		}
		damagedJob(t, engines, rng.Uint64(), fmt.Sprintf("seed %d, round %d", seed, i))
	}
}
