package collective

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// scatterAlgorithm starts a reducescatter by one particular algorithm.
type scatterAlgorithm struct {
	name  string
	exact bool // its result has the bits of the reference for any elements
	start func(l *Lane, r reduction, counts []int64) Op
}

func chosenScatter(l *Lane, r reduction, counts []int64) Op {
	return l.Reducescatter(r.dt, r.op, r.in, r.out, counts, r.scale)
}

func scatterAlgorithms(shared bool, size int) []scatterAlgorithm {
	if shared || size == 1 {
		return []scatterAlgorithm{{"chosen", true, chosenScatter}}
	}
	return []scatterAlgorithm{
		{"chosen", false, chosenScatter},
		{"exchange", true, func(l *Lane, r reduction, counts []int64) Op {
			return l.reducescatterExchange.start(l, r, counts)
		}},
		{"ring", false, func(l *Lane, r reduction, counts []int64) Op {
			l.begin()
			if _, err := l.deal(l.offsets, counts); err != nil {
				panic(err)
			}
			return l.reducescatterRing.start(l, r)
		}},
	}
}

// reducescatterJob checks against the naive allreduce, bit for bit. parts are in
// elements.
func reducescatterJob(rng *rand.Rand, a scatterAlgorithm, dt tensor.DType, op tensor.ReduceOp, parts []int) job {
	size, total := len(parts), 0
	counts, offsets := make([]int64, size), make([]int, size)
	for m, n := range parts {
		counts[m], offsets[m] = int64(n*dt.Size()), total*dt.Size()
		total += n
	}
	scale := 1.0
	if dt != tensor.Bool && rng.IntN(2) == 0 {
		scale = 0.5
	}
	ins, sources, outs := make([][]byte, size), make([][]byte, size), make([]guarded, size)
	for r := range ins {
		ins[r] = elements(rng, dt, total, !a.exact)
		sources[r] = bytes.Clone(ins[r])
		outs[r] = newGuarded(make([]byte, counts[r]))
	}
	want := naiveAllreduce(dt, op, ins, scale)
	return job{
		name: fmt.Sprintf("reducescatter %s of %v %v, %v, scale %v", a.name, parts, dt, op, scale),
		start: func(l *Lane) Op {
			passed := slices.Clone(counts)
			o := a.start(l, reduction{dt: dt, op: op, in: sources[l.rank], out: outs[l.rank].data(),
				scale: scale}, passed)
			clear(passed) // the operation must not keep them
			return o
		},
		check: func(r int) error {
			if !bytes.Equal(sources[r], ins[r]) {
				return fmt.Errorf("rank %d: the input has changed", r)
			}
			return outs[r].expect(r, want[offsets[r]:][:counts[r]])
		},
	}
}

// alltoallJob sends sizes[from][to] bytes from each member to each.
func alltoallJob(rng *rand.Rand, sizes [][]int) job {
	size := len(sizes)
	ins, sources, wants, outs := make([][]byte, size), make([][]byte, size), make([][]byte, size), make([]guarded, size)
	send, receive := make([][]int64, size), make([][]int64, size)
	for from := range size {
		for to, n := range sizes[from] {
			part := elements(rng, tensor.Uint8, n, false)
			ins[from] = append(ins[from], part...)
			wants[to] = append(wants[to], part...)
			send[from] = append(send[from], int64(n))
			receive[to] = append(receive[to], int64(n))
		}
	}
	for r := range size {
		sources[r] = bytes.Clone(ins[r])
		outs[r] = newGuarded(make([]byte, len(wants[r])))
	}
	return job{
		name: fmt.Sprintf("alltoall of %v bytes", sizes),
		start: func(l *Lane) Op {
			s, r := slices.Clone(send[l.rank]), slices.Clone(receive[l.rank])
			op := l.Alltoall(sources[l.rank], s, outs[l.rank].data(), r)
			clear(s) // the operation must not keep them
			clear(r)
			return op
		},
		check: func(r int) error {
			if !bytes.Equal(sources[r], ins[r]) {
				return fmt.Errorf("rank %d: the input has changed", r)
			}
			return outs[r].expect(r, wants[r])
		},
	}
}

func alltoallCountsJob(rng *rand.Rand, size int) job {
	send, received := make([][]int64, size), make([][]int64, size)
	for r := range size {
		received[r] = make([]int64, size)
		for range size {
			send[r] = append(send[r], rng.Int64()-rng.Int64())
		}
	}
	return job{
		name:  "alltoall of counts",
		start: func(l *Lane) Op { return l.AlltoallCounts(send[l.rank], received[l.rank]) },
		check: func(r int) error {
			for m, got := range received[r] {
				if got != send[m][r] {
					return fmt.Errorf("rank %d: %d from member %d, want %d", r, got, m, send[m][r])
				}
			}
			return nil
		},
	}
}

// adasumJob checks against the naive reference, bit for bit. parts are in
// elements.
func adasumJob(rng *rand.Rand, size int, dt tensor.DType, parts []int) job {
	scale := []float64{1, 0.5, 1.0 / 3}[rng.IntN(3)]
	ins, bufs, total := make([][]byte, size), make([]guarded, size), 0
	lengths := make([]int, len(parts))
	for i, n := range parts {
		total += n
		lengths[i] = n * dt.Size()
	}
	for r := range ins {
		ins[r] = elements(rng, dt, total, false)
		bufs[r] = newGuarded(ins[r])
	}
	want := naiveAdasum(dt, ins, lengths, scale)
	return job{
		name: fmt.Sprintf("adasum of %v %v, scale %v, %d members", parts, dt, scale, size),
		start: func(l *Lane) Op {
			passed := slices.Clone(lengths)
			op := l.Adasum(dt, bufs[l.rank].data(), passed, scale)
			clear(passed) // the operation must not keep them
			return op
		},
		check: func(r int) error { return bufs[r].expect(r, want) },
	}
}

// naiveAdasum is the reference: part by part, vectors of the members in a
// tree.
func naiveAdasum(dt tensor.DType, ins [][]byte, parts []int, scale float64) []byte {
	var out []byte
	off := 0
	for _, n := range parts {
		vectors := make([][]byte, len(ins))
		for r := range ins {
			vectors[r] = ins[r][off : off+n]
		}
		off += n
		power := 1
		for 2*power <= len(ins) {
			power *= 2
		}
		for extra := len(ins) - power; extra > 0; extra-- {
			vectors[extra-1] = naivePair(dt, vectors[extra-1], vectors[power+extra-1], 1)
		}
		vectors = vectors[:power]
		for len(vectors) > 1 {
			last := 1.0
			if len(vectors) == 2 {
				last = scale
			}
			var next [][]byte
			for i := 0; i < len(vectors); i += 2 {
				next = append(next, naivePair(dt, vectors[i], vectors[i+1], last))
			}
			vectors = next
		}
		if len(ins) == 1 {
			vectors[0] = naiveAllreduce(dt, tensor.Sum, ins[:1], scale)[off-n : off]
		}
		out = append(out, vectors[0]...)
	}
	return out
}

func naivePair(dt tensor.DType, x, y []byte, scale float64) []byte {
	size := dt.Size()
	n := len(x) / size
	block := max(1024, (n+511)/512)
	var xy, xx, yy float64
	for from := 0; from < n; from += block {
		var sums [3][16]float64
		for i := from; i < min(from+block, n); i++ {
			u, v := decode64(dt, x[i*size:]), decode64(dt, y[i*size:])
			sums[0][(i-from)%16] += float64(u * v)
			sums[1][(i-from)%16] += float64(u * u)
			sums[2][(i-from)%16] += float64(v * v)
		}
		xy, xx, yy = xy+pairwise(sums[0][:]), xx+pairwise(sums[1][:]), yy+pairwise(sums[2][:])
	}
	cx, cy := 1.0, 1.0
	if xx >= 1.4916681462400413e-154 { // the square root of C's DBL_MIN
		cx = 1 - xy/(2*xx)
	}
	if yy >= 1.4916681462400413e-154 {
		cy = 1 - xy/(2*yy)
	}
	cx *= scale
	cy *= scale
	out := make([]byte, len(x))
	for i := range n {
		u, v := decode64(dt, x[i*size:]), decode64(dt, y[i*size:])
		encode64(dt, out[i*size:], float64(cx*u)+float64(cy*v))
	}
	return out
}

// pairwise adds one half of v to the other until one number is left.
func pairwise(v []float64) float64 {
	for ; len(v) > 1; v = v[:len(v)/2] {
		for i := range len(v) / 2 {
			v[i] += v[len(v)/2+i]
		}
	}
	return v[0]
}

func decode64(dt tensor.DType, p []byte) float64 {
	if dt == tensor.Float64 {
		return math.Float64frombits(load(p, 8))
	}
	return float64(decode32(dt, p))
}

func encode64(dt tensor.DType, p []byte, f float64) {
	switch dt {
	case tensor.Float64:
		binary.LittleEndian.PutUint64(p, math.Float64bits(f))
	case tensor.Float32:
		store(p, 4, encode32(dt, float32(f)))
	default:
		store(p, 2, nearest16(dt, f))
	}
}

// nearest16 finds the 16-bit float nearest f among those close to the float32 nearest f.
func nearest16(dt tensor.DType, f float64) uint64 {
	guess := encode32(dt, float32(f))
	best := guess
	for _, c := range []uint64{guess - 1, guess + 1} {
		d := math.Abs(decodeBits(dt, c) - f)
		old := math.Abs(decodeBits(dt, best) - f)
		if d < old || d == old && c&1 == 0 && best&1 == 1 {
			best = c
		}
	}
	return best
}

func decodeBits(dt tensor.DType, bits uint64) float64 {
	var p [2]byte
	binary.LittleEndian.PutUint16(p[:], uint16(bits))
	return float64(decode32(dt, p[:]))
}
