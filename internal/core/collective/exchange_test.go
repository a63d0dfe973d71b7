package collective

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// parts returns ways to deal out about n elements: evenly, with a remainder, with empty parts, and everything to one
// member.
func parts(rng *rand.Rand, size, n int) [][]int {
	even, rest, some, one := make([]int, size), make([]int, size), make([]int, size), make([]int, size)
	for m := range size {
		even[m] = n / size
		rest[m] = n / size
		if m < n%size {
			rest[m]++
		}
		if rng.IntN(2) == 0 {
			some[m] = rng.IntN(n + 1)
		}
	}
	one[rng.IntN(size)] = n
	return [][]int{even, rest, some, one}
}

func TestReducescatterMatchesTheReference(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		var jobs []job
		for _, a := range scatterAlgorithms(o.Shared, size) {
			for dt := range tensor.DType(tensor.NumReducible) {
				turn := rng.IntN(3)
				for i, op := range opsOf(dt) {
					for j, bytes := range []int{0, 1, 64 * size, testPiece * bandPieces, testChunk, 5*testChunk + 8} {
						if (turn+i+j)%3 != 0 {
							continue // each operation runs with two of the lengths
						}
						all := parts(rng, size, bytes/dt.Size())
						jobs = append(jobs, reducescatterJob(rng, a, dt, op, all[rng.IntN(len(all))]))
					}
				}
				for _, p := range parts(rng, size, 12*testChunk/dt.Size()) {
					jobs = append(jobs, reducescatterJob(rng, a, dt, tensor.Sum, p))
				}
			}
		}
		newGroup(t, size, o).runScheduled(t, rng, jobs)
	})
}

// The choice of algorithm at its limit. The longest part decides, not this member's.
func TestReducescatterChoice(t *testing.T) {
	for _, c := range []struct {
		shared bool
		counts []int64
		want   string
	}{
		{true, []int64{0, 4}, "*collective.reducescatterShared"},
		{true, []int64{0, 1 << 20}, "*collective.reducescatterShared"},
		{false, []int64{0, 128 << 10}, "*collective.reducescatterExchange"},
		{false, []int64{0, 128<<10 + 4}, "*collective.reducescatterRing"},
		{false, []int64{64 << 10, 0, 0, 64 << 10}, "*collective.reducescatterExchange"},
		{false, []int64{4, 0, 0, 64<<10 + 4}, "*collective.reducescatterRing"},
	} {
		g := newGroup(t, len(c.counts), inproc.Options{Shared: c.shared, ChunkBytes: 512 << 10})
		total := int64(0)
		for _, n := range c.counts {
			total += n
		}
		in, out := make([]byte, total), make([]byte, c.counts[0])
		if got := fmt.Sprintf("%T", g.lanes[0].Reducescatter(tensor.Float32, tensor.Sum, in, out, c.counts,
			1)); got != c.want {
			t.Errorf("shared %v, parts %v: %s, want %s", c.shared, c.counts, got, c.want)
		}
	}
}

// matrices returns ways to exchange about n bytes for each member.
func matrices(rng *rand.Rand, size, n int) [][][]int {
	make2 := func(f func(from, to int) int) [][]int {
		out := make([][]int, size)
		for from := range out {
			out[from] = make([]int, size)
			for to := range out[from] {
				out[from][to] = f(from, to)
			}
		}
		return out
	}
	who, whom := rng.IntN(size), rng.IntN(size)
	pick := func(yes bool, n int) int {
		if yes {
			return n
		}
		return 0
	}
	return [][][]int{
		make2(func(from, to int) int { return n / size }),
		make2(func(from, to int) int { return rng.IntN(2) * rng.IntN(n+1) }),
		make2(func(from, to int) int { return pick(from == who, n) }),                 // a scatter
		make2(func(from, to int) int { return pick(to == whom, n) }),                  // a gather
		make2(func(from, to int) int { return pick(from == who && to == whom, 5*n) }), // one pair
		make2(func(from, to int) int { return n * (from + 2*to) / (3 * size) }),
	}
}

func TestAlltoallOfUnequalSizes(t *testing.T) {
	forEachKind(t, func(t *testing.T, o inproc.Options, size int) {
		rng := random(t)
		jobs := []job{alltoallCountsJob(rng, size)}
		for _, n := range []int{0, 1, size, 64, testChunk - 8*(size+1), testChunk, 7*testChunk + 3} {
			for _, sizes := range matrices(rng, size, n) {
				jobs = append(jobs, alltoallJob(rng, sizes), alltoallCountsJob(rng, size))
			}
		}
		newGroup(t, size, o).runScheduled(t, rng, jobs)
	})
}

var floats = []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64}

func TestAdasumMatchesTheReference(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	for _, shared := range []bool{true, false} {
		for size := 1; size <= 9; size++ {
			rng := random(t)
			var jobs []job
			for _, dt := range floats {
				for _, segments := range [][]int{{}, {0}, {1}, {3, 0, 5}, {1024}, {1025, 1023}, {1, 1, 1, 1, 1, 1, 1, 1,
					1, 1, 1}, {7, 3000, 0, 5000, 1}} {
					jobs = append(jobs, adasumJob(rng, size, dt, segments))
				}
			}
			newGroup(t, size, inproc.Options{Shared: shared}).runScheduled(t, rng, jobs)
		}
	}
}

// Blocks are longer than the least, and buffers and pieces have their default sizes.
func TestAdasumOfALongSegment(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	for _, shared := range []bool{true, false} {
		rng := random(t)
		g := newGroup(t, 3, inproc.Options{Shared: shared, ChunkBytes: 512 << 10})
		for _, l := range g.lanes {
			l.piece = pieceBytes
		}
		g.runScheduled(t, rng,
			[]job{adasumJob(rng, 3, tensor.Float32, []int{100, maxBlocks*blockElements + 70_001, 2000})})
	}
}

// So many members that a buffer has only a few lines for each.
func TestExchangesOfManyMembers(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	const size = 67
	for _, shared := range []bool{true, false} {
		rng := random(t)
		jobs := []job{alltoallCountsJob(rng, size)}
		for _, sizes := range matrices(rng, size, 3000) {
			jobs = append(jobs, alltoallJob(rng, sizes))
		}
		for _, a := range scatterAlgorithms(shared, size) {
			for _, p := range parts(rng, size, 500) {
				jobs = append(jobs, reducescatterJob(rng, a, tensor.Int32, tensor.Sum, p))
			}
		}
		jobs = append(jobs, adasumJob(rng, size, tensor.Float32, []int{3000, 0, 5000}))
		newGroup(t, size, inproc.Options{Shared: shared}).runScheduled(t, rng, jobs)
	}
}

// Every part, however large, has its slice in each chunk, and no chunk is
// larger than a buffer.
func TestSlicesFitIntoABuffer(t *testing.T) {
	rng := random(t)
	for range 2000 {
		size := 1 + rng.IntN(9)
		l := &Lane{size: size, offsets: make([]int, size+1)}
		limit := lineBytes * size * (1 + rng.IntN(20))
		longest := 0
		for m := range size {
			n := rng.IntN(2) * rng.IntN(1<<rng.IntN(40))
			l.offsets[m+1] = l.offsets[m] + n
			longest = max(longest, n)
		}
		total := func(slices int) (sum int) {
			for m := range size {
				sum += sliceWidth(l.offsets[m+1]-l.offsets[m], slices)
			}
			return sum
		}
		slices := l.slices(limit)
		if n := total(slices); n > limit {
			t.Fatalf("%v: %d slices of %d bytes in a buffer of %d", l.offsets, slices, n, limit)
		}
		if slices > 1 && total(slices-1) <= limit {
			t.Fatalf("%v: %d slices where %d would do", l.offsets, slices, slices-1)
		}
	}
}

// A member that expects more than is sent must not read another member's data.
func TestAlltoallFindsSizesThatDiffer(t *testing.T) {
	g := newGroup(t, 2, inproc.Options{Shared: true})
	b := make([]byte, 16)
	first := g.lanes[0].Alltoall(b[:8], []int64{0, 8}, nil, []int64{0, 0})
	second := g.lanes[1].Alltoall(nil, []int64{0, 0}, b[:4], []int64{4, 0})
	if done, err := first.Advance(); done || err != nil {
		t.Fatalf("first: %v, %v", done, err)
	}
	done, err := second.Advance()
	if !done || err == nil || !strings.Contains(err.Error(), "member 0 sends 8 bytes, member 1 expects 4") {
		t.Fatalf("second: %v, %v", done, err)
	}
}
