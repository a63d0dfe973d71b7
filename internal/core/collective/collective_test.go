package collective

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

var (
	sizes = []int{1, 2, 3, 4, 5, 8}
	ops   = []tensor.ReduceOp{tensor.Sum, tensor.Min, tensor.Max, tensor.Product}
)

// opsOf are the operations that are defined for elements of type dt.
func opsOf(dt tensor.DType) []tensor.ReduceOp {
	if slices.Contains(floats, dt) {
		return ops
	}
	return append(slices.Clone(ops), tensor.BitAnd, tensor.BitOr, tensor.BitXor)
}

// anyOf is a random one of them.
func anyOf(rng *rand.Rand, dt tensor.DType) tensor.ReduceOp {
	all := opsOf(dt)
	return all[rng.IntN(len(all))]
}

// lengths are in elements. Among them are lengths close to a buffer of 1024 bytes (1152 for three members, 1280 for
// five) and to a piece of 128.
func lengths(dt tensor.DType) []int {
	out := []int{0, 1, 2, 3, 63, 64, 65, 1000}
	for _, b := range []int{testPiece, testChunk, 1152, 1280, 4 * testChunk} {
		n := b / dt.Size()
		out = append(out, n-1, n, n+1)
	}
	return out
}

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes the time")

// random returns a generator whose seed a failure prints.
func random(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with -seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func forEachKind(t *testing.T, f func(t *testing.T, o inproc.Options, size int)) {
	for _, size := range sizes {
		t.Run(fmt.Sprintf("shared/%d", size), func(t *testing.T) {
			f(t, inproc.Options{Shared: true, Depth: 2 + size%3}, size)
		})
	}
	forEachComm(t, 1, f)
}

// forEachComm runs f on at least that many ranks, of which some or all communicate over a Comm.
func forEachComm(t *testing.T, least int, f func(t *testing.T, o inproc.Options, size int)) {
	for _, size := range sizes {
		if size < least {
			continue
		}
		t.Run(fmt.Sprintf("comm/%d", size), func(t *testing.T) {
			f(t, inproc.Options{Depth: 2 + size%3}, size)
		})
	}
	for _, hosts := range topologies {
		t.Run(fmt.Sprint("hosts/", hosts), func(t *testing.T) {
			f(t, inproc.Options{Hosts: hosts, Depth: 2 + len(hosts)%3}, sizeOf(hosts))
		})
	}
}

// topologies are ranks by host: equally many or not, in order or not, and alone on a host.
var topologies = [][][]int{
	{{0, 1}, {2, 3}},
	{{0, 2, 4}, {1, 3, 5}},
	{{0}, {1, 2, 3}},
	{{0, 1, 4}, {2}, {3, 5}},
	{{0, 1, 2}, {3, 4}, {5, 6, 7, 8}},
	{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}},
}

func sizeOf(hosts [][]int) (size int) {
	for _, ranks := range hosts {
		size += len(ranks)
	}
	return size
}

// Every algorithm × type × operation × length × size gives the bits of the reference: over Shared with any floats, over
// Comm with floats whose sum is exact in any order. All run back to back on one lane.
func TestAllreduceMatchesTheReference(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		g := newGroup(t, size, o)
		var jobs []job
		for _, a := range algorithms(o) {
			for dt := range tensor.DType(tensor.NumReducible) {
				ops := opsOf(dt)
				turn := rng.IntN(len(ops))
				for _, n := range lengths(dt) {
					if !a.fits(n*dt.Size(), size) {
						continue
					}
					// The operations take turns, so that each run has each of them with each type and algorithm, and
					// with some lengths.
					turn++
					op := ops[turn%len(ops)]
					jobs = append(jobs, allreduceJob(rng, a, size, dt, op, n, !o.Shared, rng.IntN(2) == 0))
				}
			}
		}
		g.runScheduled(t, rng, jobs)
	})
}

// The same with the default sizes of buffers, blocks and pieces. The length is several times each of them, and a
// multiple of none.
func TestAllreduceWithDefaultSizes(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	for _, shared := range []bool{true, false} {
		for _, size := range []int{2, 3} {
			rng := random(t)
			g := newGroup(t, size, inproc.Options{Shared: shared, ChunkBytes: 512 << 10})
			for _, l := range g.lanes {
				l.piece = pieceBytes
			}
			var jobs []job
			for _, n := range []int{5, 10_001, 300_007} {
				jobs = append(jobs, allreduceJob(rng, algorithms(inproc.Options{Shared: shared})[0], size,
					tensor.Float32, tensor.Sum, n, !shared, n > 10_000))
			}
			jobs = append(jobs, broadcastJob(rng, size, 1, 1_200_003))
			g.runScheduled(t, rng, jobs)
		}
	}
}

// The choice of algorithm at its limits. It may depend only on kind, size and length.
func TestChoice(t *testing.T) {
	const chunk = 512 << 10
	for _, c := range []struct {
		shared  bool
		size, n int
		want    string
	}{
		{true, 1, 4, "*collective.allreduceLocal"},
		{true, 2, 4, "*collective.allreduceSharedFlat"},
		{true, 2, 32 << 10, "*collective.allreduceSharedFlat"},
		{true, 2, 32<<10 + 4, "*collective.allreduceSharedPipelined"},
		{true, 8, 8 << 10, "*collective.allreduceSharedFlat"},
		{true, 8, 8<<10 + 4, "*collective.allreduceSharedPipelined"},
		{false, 2, 256 << 10, "*collective.allreduceDoubling"},
		{false, 2, 256<<10 + 64, "*collective.ring"},
		{false, 4, 64 << 10, "*collective.allreduceDoubling"},
		{false, 4, 128 << 10, "*collective.allreduceHalving"},
		{false, 5, 4, "*collective.allreduceDoubling"},
		{false, 8, 1 << 20, "*collective.allreduceHalving"},
		{false, 3, 4, "*collective.allreduceDoubling"},
		{false, 3, 1 << 20, "*collective.ring"},
		{false, 8, 16 << 20, "*collective.ring"},
		{false, 100, 16 << 10, "*collective.allreduceDoubling"},
	} {
		g := newGroup(t, c.size, inproc.Options{Shared: c.shared, ChunkBytes: chunk})
		b := make([]byte, c.n)
		if got := fmt.Sprintf("%T", g.lanes[0].Allreduce(tensor.Float32, tensor.Sum, b, b, 1)); got != c.want {
			t.Errorf("shared %v, %d members, %d bytes: %s, want %s", c.shared, c.size, c.n, got, c.want)
		}
	}
}

// mixture is a random sequence of all collectives.
func mixture(rng *rand.Rand, o inproc.Options, size, count int) []job {
	var jobs []job
	length := func() int {
		return []int{0, 1, 7, 64, 100, testChunk - 1, testChunk, testChunk + 1, 5 * testChunk}[rng.IntN(9)]
	}
	for len(jobs) < count {
		switch rng.IntN(9) {
		case 0:
			all := scatterAlgorithms(o.Shared, size)
			dt := tensor.DType(rng.IntN(tensor.NumReducible))
			for _, p := range parts(rng, size, length()/dt.Size()) {
				jobs = append(jobs, reducescatterJob(rng, all[rng.IntN(len(all))], dt, anyOf(rng, dt), p))
			}
		case 1:
			for _, sizes := range matrices(rng, size, length()) {
				jobs = append(jobs, alltoallJob(rng, sizes))
			}
		case 2:
			jobs = append(jobs, alltoallCountsJob(rng, size))
		case 3:
			dt := floats[rng.IntN(len(floats))]
			jobs = append(jobs, adasumJob(rng, size, dt, []int{length() / dt.Size(), length() / dt.Size()}))
		case 4:
			dt := tensor.DType(rng.IntN(tensor.NumReducible))
			all := algorithms(o)
			a := all[rng.IntN(len(all))]
			n := length() / dt.Size()
			if a.fits(n*dt.Size(), size) {
				jobs = append(jobs, allreduceJob(rng, a, size, dt, anyOf(rng, dt), n, !o.Shared, rng.IntN(2) == 0))
			}
		case 5:
			counts := make([]int64, size)
			for m := range counts {
				counts[m] = int64(length())
			}
			jobs = append(jobs, allgatherJob(rng, counts, rng.IntN(2) == 0))
		case 6:
			jobs = append(jobs, broadcastJob(rng, size, rng.IntN(size), length()))
		case 7:
			dt := tensor.DType(rng.IntN(tensor.NumReducible))
			form := []string{"chosen", "tree", "chain"}[rng.IntN(3)]
			jobs = append(jobs, reduceJob(rng, form, size, rng.IntN(size), dt, anyOf(rng, dt), length()/dt.Size(),
				!o.Shared))
		default:
			jobs = append(jobs, barrierJob(size))
		}
	}
	return jobs
}

// barrierJob checks that no member leaves before all have entered.
func barrierJob(size int) job {
	entered := new(atomic.Int32)
	return job{
		name: "barrier",
		start: func(l *Lane) Op {
			entered.Add(1)
			return l.Barrier()
		},
		check: func(r int) error {
			if n := int(entered.Load()); n != size {
				return fmt.Errorf("rank %d left when %d of %d had entered", r, n, size)
			}
			return nil
		},
	}
}

func TestMixturesEndInAnyInterleaving(t *testing.T) {
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		count := 400
		if raceDetector { // with one goroutine the race detector has nothing to find
			count = 40
		}
		newGroup(t, size, o).runScheduled(t, rng, mixture(rng, o, size, count))
	})
}

// The same with a goroutine for each rank, which sleeps on its bell: for the race detector, and to find a missing ring.
func TestMixturesWithSleepingDrivers(t *testing.T) {
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		count := 300
		if raceDetector {
			count = 100
		}
		newGroup(t, size, o).runConcurrently(t, mixture(rng, o, size, count))
	})
}

func TestAllgatherOfUnequalContributions(t *testing.T) {
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		var jobs []job
		for _, long := range []int64{1, testPiece + 1, testChunk, 3*testChunk + 5} {
			for who := range size {
				counts := make([]int64, size)
				counts[who] = long
				jobs = append(jobs, allgatherJob(rng, counts, false), allgatherJob(rng, counts, true))
				for m := range counts {
					counts[m] = long - int64(m)
				}
				if long > int64(size) {
					jobs = append(jobs, allgatherJob(rng, counts, who%2 == 0))
				}
			}
		}
		newGroup(t, size, o).runScheduled(t, rng, jobs)
	})
}

func TestBroadcastFromEveryRoot(t *testing.T) {
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		var jobs []job
		for root := range size {
			for _, n := range []int{0, 1, testPiece, testPiece + 1, testChunk - 1, testChunk, testChunk + 1,
				5*testChunk + 3} {
				jobs = append(jobs, broadcastJob(rng, size, root, n))
			}
		}
		newGroup(t, size, o).runScheduled(t, rng, jobs)
	})
}

// The sums of these floats depend on the order. Over Comm each algorithm has its own order, but all ranks must have the
// same bits, near the exact sum.
func TestRanksAgreeOverComm(t *testing.T) {
	for _, size := range sizes[1:] {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rng := random(t)
			checkAgreement(t, rng, inproc.Options{}, size)
		})
	}
	for _, hosts := range topologies {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			checkAgreement(t, random(t), inproc.Options{Hosts: hosts}, sizeOf(hosts))
		})
	}
}

func checkAgreement(t *testing.T, rng *rand.Rand, o inproc.Options, size int) {
	var jobs []job
	for _, a := range algorithms(o) {
		for _, dt := range floats {
			for _, n := range []int{1, 65, 1000} {
				jobs = append(jobs, agreementJob(rng, a, size, dt, n))
			}
		}
	}
	newGroup(t, size, o).runScheduled(t, rng, jobs)
}

func agreementJob(rng *rand.Rand, a algorithm, size int, dt tensor.DType, n int) job {
	const scale = 1.0 / 3
	ins, outs := make([][]byte, size), make([]guarded, size)
	for r := range ins {
		ins[r] = elements(rng, dt, n, false)
		outs[r] = newGuarded(make([]byte, len(ins[r])))
	}
	near := naiveAllreduce(dt, tensor.Sum, ins, scale)
	var first []byte
	return job{
		name: fmt.Sprintf("allreduce %s of %d %v", a.name, n, dt),
		start: func(l *Lane) Op {
			return a.start(l, reduction{dt: dt, op: tensor.Sum, in: ins[l.rank], out: outs[l.rank].data(),
				scale: scale})
		},
		check: func(r int) error {
			if first == nil {
				first = outs[r].data()
				tolerance := map[tensor.DType]float64{tensor.Float16: 0.02, tensor.BFloat16: 0.2}[dt] + 1e-5
				for at := 0; at < len(first) && dt != tensor.Float64; at += dt.Size() {
					if d := float64(decode32(dt, first[at:]) - decode32(dt, near[at:])); d > tolerance ||
						d < -tolerance {
						return fmt.Errorf("element %d is off by %v", at/dt.Size(), d)
					}
				}
			}
			return outs[r].expect(r, first)
		},
	}
}

func TestArgumentsAreRefused(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Shared: true})
	l := g.lanes[0]
	b := make([]byte, 8)
	check := func(op Op, want string) {
		t.Helper()
		done, err := op.Advance()
		if !done || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Advance() = %v, %v; want an error with %q", done, err, want)
		}
	}
	check(l.Allreduce(99, tensor.Sum, b, b, 1), "element type")
	check(l.Allreduce(tensor.Float32, tensor.Average, b, b, 1), "average")
	check(l.Allreduce(tensor.Bool, tensor.Sum, b, b, 2), "scaled")
	check(l.Allreduce(tensor.Float32, tensor.Sum, b, b[:4], 1), "output of 4")
	check(l.Allreduce(tensor.Float32, tensor.Sum, b[:6], b[:6], 1), "whole elements")
	check(l.Allgather(b, b, []int64{8}), "1 counts")
	check(l.Allgather(b, b, []int64{8, -1}), "member 1")
	check(l.Allgather(b, b, []int64{1 << 62, 1 << 62}), "member 1")
	check(l.Allgather(b, b, []int64{4, 4}), "input of 8")
	check(l.Allgather(b, b, []int64{8, 4}), "output of 8")
	check(l.Reducescatter(99, tensor.Sum, b, b[:4], []int64{4, 4}, 1), "element type")
	check(l.Reducescatter(tensor.Float32, tensor.Adasum, b, b[:4], []int64{4, 4}, 1), "adasum")
	check(l.Reducescatter(tensor.Bool, tensor.Sum, b, b[:4], []int64{4, 4}, 2), "scaled")
	check(l.Reducescatter(tensor.Float32, tensor.Sum, b, b[:4], []int64{8}, 1), "1 counts")
	check(l.Reducescatter(tensor.Float32, tensor.Sum, b, b[:4], []int64{4, -4}, 1), "member 1")
	check(l.Reducescatter(tensor.Float32, tensor.Sum, b, b[:4], []int64{4, 8}, 1), "input of 8")
	check(l.Reducescatter(tensor.Float32, tensor.Sum, b, b[:4], []int64{8, 0}, 1), "output of 4")
	check(l.Reducescatter(tensor.Float32, tensor.Sum, b, b[:6], []int64{6, 2}, 1), "whole elements")
	check(l.Alltoall(b, []int64{8}, b, []int64{0, 8}), "1 counts")
	check(l.Alltoall(b, []int64{0, 8}, b, []int64{0, 8, 0}), "3 counts")
	check(l.Alltoall(b, []int64{0, 4}, b, []int64{0, 8}), "input of 8")
	check(l.Alltoall(b, []int64{0, 8}, b, []int64{0, 4}), "output of 8")
	check(l.Alltoall(b, []int64{-8, 16}, b, []int64{0, 8}), "member 0")
	check(l.Alltoall(b, []int64{8, 0}, b, []int64{0, 8}), "itself")
	check(l.AlltoallCounts([]int64{1}, []int64{1, 2}), "1 counts to send")
	check(l.AlltoallCounts([]int64{1, 2}, []int64{1}), "1 to receive")
	check(l.Adasum(tensor.Int32, b, []int{8}, 1), "not floats")
	check(l.Adasum(99, b, []int{8}, 1), "not floats")
	check(l.Adasum(tensor.Float32, b, []int{4}, 1), "parts of 4")
	check(l.Adasum(tensor.Float32, b, []int{4, 8}, 1), "part 1")
	check(l.Adasum(tensor.Float32, b, []int{-4, 12}, 1), "part 0")
	check(l.Adasum(tensor.Float32, b, []int{6, 2}, 1), "whole elements")
	check(l.Broadcast(2, b), "root 2")
	check(l.Broadcast(-1, b), "root -1")
	check(l.Reduce(2, tensor.Float32, tensor.Sum, b, nil, 1), "root 2")
	check(l.Reduce(1, tensor.Float32, tensor.Sum, b, b, 1), "but the root is 1")
	check(l.Reduce(0, tensor.Float32, tensor.Sum, b, nil, 1), "output of 0")
	check(l.Reduce(0, tensor.Float32, tensor.Average, b, b, 1), "average")
	check(l.Reduce(0, tensor.Bool, tensor.Sum, b, b, 2), "scaled")
	check(l.Reduce(1, tensor.Float32, tensor.Sum, b[:6], nil, 1), "whole elements")
}

func TestOneOperationAtATime(t *testing.T) {
	b := make([]byte, 8)
	for _, shared := range []bool{true, false} {
		for _, start := range []func(l *Lane) Op{
			(*Lane).Barrier,
			func(l *Lane) Op { return l.Reducescatter(tensor.Float32, tensor.Sum, b, b[:4], []int64{4, 4}, 1) },
			func(l *Lane) Op { return l.Alltoall(b, []int64{0, 8}, b, []int64{0, 8}) },
			func(l *Lane) Op { return l.Adasum(tensor.Float32, b, []int{8}, 1) },
		} {
			g := newGroup(t, 2, inproc.Options{Shared: shared})
			start(g.lanes[0])
			func() {
				defer func() {
					if recover() == nil {
						t.Error("a second operation was accepted")
					}
				}()
				g.lanes[0].Barrier()
			}()
		}
	}
}

// Repeated operations allocate nothing.
func TestNoAllocations(t *testing.T) {
	check := func(name string, o inproc.Options, size int, options ...Options) {
		t.Run(name, func(t *testing.T) { checkAllocations(t, newGroup(t, size, o, options...), o.Shared) })
	}
	for _, size := range []int{1, 2, 3} {
		check(fmt.Sprintf("%d over shared memory", size), inproc.Options{Shared: true}, size)
		check(fmt.Sprintf("%d over messages", size), inproc.Options{}, size)
	}
	check("3 over messages, deterministic", inproc.Options{}, 3, Options{Deterministic: true})
	for _, hosts := range topologies[:4] {
		o := inproc.Options{Hosts: hosts}
		check(fmt.Sprint("hosts ", hosts), o, sizeOf(hosts))
		check(fmt.Sprintf("hosts %v, deterministic", hosts), o, sizeOf(hosts), Options{Deterministic: true})
	}
}

func checkAllocations(t *testing.T, g *group, shared bool) {
	size := len(g.lanes)
	live := make([]Op, size)
	finish := func() {
		for left := size; left > 0; {
			left = size
			for r, op := range live {
				if op == nil {
					left--
				} else if done, err := op.Advance(); err != nil {
					t.Fatal(err)
				} else if done {
					live[r] = nil
				}
			}
		}
	}
	for name, start := range repeatable(size, size > 1 && !shared) {
		allocations := testing.AllocsPerRun(20, func() {
			for r, l := range g.lanes {
				live[r] = start(r, l)
			}
			finish()
		})
		if allocations != 0 {
			t.Errorf("%s: %v allocations a round", name, allocations)
		}
	}
}

// repeatable returns operations with their own memory, which member r of size may start again and again.
func repeatable(size int, rings bool) map[string]func(r int, l *Lane) Op {
	small, large, outs := make([][]byte, size), make([][]byte, size), make([][]byte, size)
	counts, most := make([]int64, size), make([]int64, size)
	most[0] = 20 * testChunk
	received := make([][]int64, size) // for an alltoall: each member sends 64 bytes to each
	lengths := []int{8, 20*testChunk - 8}
	parts := make([][]Part, size)
	arguments := make([]Arguments, size)
	for r := range size {
		received[r] = slices.Repeat([]int64{64}, size)
		small[r], large[r] = make([]byte, 64), make([]byte, 20*testChunk)
		outs[r] = make([]byte, 64*size, 20*testChunk)
		counts[r] = 64
		parts[r] = []Part{{small[r], small[r], 64}, {large[r], large[r], len(large[r])}, {nil, nil, 8}}
	}
	reduce := func(in [][]byte) func(r int, l *Lane) Op {
		return func(r int, l *Lane) Op {
			return l.Reduce(size-1, tensor.Float32, tensor.Sum, in[r], in[r][:len(in[r])*((r+1)/size)], 0.5)
		}
	}
	all := map[string]func(r int, l *Lane) Op{
		"a small allreduce": func(r int, l *Lane) Op {
			return l.Allreduce(tensor.Float32, tensor.Sum, small[r], small[r], 0.5)
		},
		"a large allreduce": func(r int, l *Lane) Op {
			return l.Allreduce(tensor.Float16, tensor.Sum, large[r], large[r], 0.5)
		},
		"a compressed allreduce": func(r int, l *Lane) Op {
			return l.AllreduceAs(tensor.WireBFloat16, tensor.Float32, tensor.Sum, large[r], large[r], 0.5, nil)
		},
		"an allreduce in parts": func(r int, l *Lane) Op {
			arguments[r] = Arguments{Kind: Allreduce, DType: tensor.Float32, Reduce: tensor.Sum, Parts: parts[r],
				Prescale: 0.5, Postscale: 0.5}
			return l.Start(&arguments[r])
		},
		"allgather":      func(r int, l *Lane) Op { return l.Allgather(small[r], outs[r], counts) },
		"broadcast":      func(r int, l *Lane) Op { return l.Broadcast(size-1, large[r]) },
		"a small reduce": reduce(small),
		"a large reduce": reduce(large),
		"a scaled reduce": func(r int, l *Lane) Op {
			arguments[r] = Arguments{Kind: Reduce, DType: tensor.Float32, Reduce: tensor.Sum, In: small[r],
				Out: small[r][:64*((size-r)/size)], Prescale: 0.5, Postscale: 0.5}
			return l.Start(&arguments[r])
		},
		"reducescatter": func(r int, l *Lane) Op {
			return l.Reducescatter(tensor.Float32, tensor.Sum, outs[r], small[r], counts, 0.5)
		},
		"alltoall's counts": func(r int, l *Lane) Op { return l.AlltoallCounts(counts, received[r]) },
		"alltoall": func(r int, l *Lane) Op {
			return l.Alltoall(outs[r], counts, large[r][:len(outs[r])], received[r])
		},
		"adasum":  func(r int, l *Lane) Op { return l.Adasum(tensor.Float32, large[r], lengths, 1) },
		"barrier": func(r int, l *Lane) Op { return l.Barrier() },
	}
	if rings {
		all["the ring of an allreduce"] = func(r int, l *Lane) Op {
			l.begin()
			return l.ring.startAllreduce(l, reduction{dt: tensor.Int32, op: tensor.Sum, in: large[r],
				out: large[r], scale: 1})
		}
		all["the ring of a reducescatter"] = func(r int, l *Lane) Op {
			l.begin()
			l.deal(l.offsets, most)
			return l.reducescatterRing.start(l, reduction{dt: tensor.Int32, op: tensor.Sum, in: large[r],
				out: outs[r][:most[r]], scale: 1})
		}
	}
	return all

}

// Parts cover the data without gaps, also data of more bytes than an int32 can count, and split no element.
func TestSharesCoverTheData(t *testing.T) {
	for _, length := range []int{0, 1, 63, 64, 65, 1000, 1<<31 - 8, 1 << 31, 1<<33 + 24} {
		for n := 1; n <= 9; n++ {
			end := 0
			for i := range n {
				lo, hi := share(length, n, i)
				if lo != end || hi < lo || lo != length && lo%lineBytes != 0 {
					t.Fatalf("share(%d, %d, %d) = %d, %d after %d", length, n, i, lo, hi, end)
				}
				end = hi
			}
			if end != length {
				t.Fatalf("%d parts of %d bytes end at %d", n, length, end)
			}
		}
	}
	for _, n := range []int{1, 64, 256 << 10, 256<<10 + 1, 1 << 33} {
		for size := 2; size < 9; size++ {
			limit := alignUp(256<<10, lineBytes*size)
			if c := pipelineChunk(n, size, limit); c <= 0 || c > limit || c%(lineBytes*size) != 0 {
				t.Fatalf("pipelineChunk(%d, %d, %d) = %d", n, size, limit, c)
			}
		}
	}
}

// A world of 500 ranks works, because only pairs that communicate cost anything.
func TestManyRanks(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	const size = 500
	rng := random(t)
	g := newGroup(t, size, inproc.Options{})
	g.runScheduled(t, rng, []job{
		allreduceJob(rng, commAlgorithms[0], size, tensor.Int32, tensor.Sum, 100, true, true),
		broadcastJob(rng, size, 77, 1000),
		barrierJob(size),
	})
}
