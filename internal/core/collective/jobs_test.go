package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// algorithm starts an allreduce by one particular algorithm.
type algorithm struct {
	name  string
	fits  func(n, size int) bool
	start func(l *Lane, r reduction) Op
}

func chosen(l *Lane, r reduction) Op {
	return l.AllreduceAs(r.wire, r.dt, r.op, r.in, r.out, r.scale, r.kept)
}

func always(int, int) bool { return true }

var sharedAlgorithms = []algorithm{
	{"chosen", always, chosen},
	{"flat", func(n, size int) bool { return n > 0 && n <= testChunk && size > 1 }, func(l *Lane, r reduction) Op {
		l.begin()
		return l.allreduceFlat.start(l, l.whole(r))
	}},
	{"pipelined", func(n, size int) bool { return n > 0 && size > 1 }, func(l *Lane, r reduction) Op {
		l.begin()
		return l.allreducePipelined.start(l, l.whole(r))
	}},
}

var commAlgorithms = []algorithm{
	{"chosen", always, chosen},
	{"ring", func(n, size int) bool { return size > 1 }, func(l *Lane, r reduction) Op {
		l.begin()
		return l.ring.startAllreduce(l, r)
	}},
	{"doubling", func(n, size int) bool { return size > 1 }, func(l *Lane, r reduction) Op {
		l.begin()
		return l.allreduceDoubling.start(l, r)
	}},
	{"halving", func(n, size int) bool { return size > 1 }, func(l *Lane, r reduction) Op {
		l.begin()
		return l.allreduceHalving.start(l, r)
	}},
}

var hostsAlgorithms = []algorithm{
	{"sharded", func(n, size int) bool { return n > 0 }, func(l *Lane, r reduction) Op {
		l.begin()
		return l.allreduceHierarchical.start(l, r)
	}},
	{"replicated", func(n, size int) bool { return n > 0 }, func(l *Lane, r reduction) Op {
		l.begin()
		if !l.hier.equal() { // unequal hosts have no such form
			return l.allreduceHierarchical.start(l, r)
		}
		return l.allreduceReplicated.start(l, r)
	}},
}

func algorithms(o inproc.Options) []algorithm {
	switch {
	case o.Shared:
		return sharedAlgorithms
	case o.Hosts != nil:
		return slices.Concat(hostsAlgorithms, commAlgorithms[:1])
	}
	return commAlgorithms
}

// allreduceJob checks against the naive reference, bit for bit.
func allreduceJob(rng *rand.Rand, a algorithm, size int, dt tensor.DType, op tensor.ReduceOp, n int, exact,
	inPlace bool) job {
	scale := 1.0
	if dt != tensor.Bool && rng.IntN(2) == 0 {
		scale = 0.5
	}
	ins := make([][]byte, size)
	for r := range ins {
		ins[r] = elements(rng, dt, n, exact)
	}
	want := naiveAllreduce(dt, op, ins, scale)
	outs := make([]guarded, size)
	sources := make([][]byte, size)
	for r := range outs {
		if inPlace {
			outs[r] = newGuarded(ins[r])
			sources[r] = outs[r].data()
		} else {
			outs[r] = newGuarded(make([]byte, len(ins[r])))
			sources[r] = bytes.Clone(ins[r])
		}
	}
	return job{
		name: fmt.Sprintf("allreduce %s of %d %v, %v, scale %v, in place %v, %d members", a.name, n, dt, op, scale,
			inPlace, size),
		start: func(l *Lane) Op {
			return a.start(l, reduction{dt: dt, op: op, in: sources[l.rank], out: outs[l.rank].data(), scale: scale})
		},
		check: func(r int) error {
			if !inPlace && !bytes.Equal(sources[r], ins[r]) {
				return fmt.Errorf("rank %d: the input has changed", r)
			}
			return outs[r].expect(r, want)
		},
	}
}

func allgatherJob(rng *rand.Rand, counts []int64, inPlace bool) job {
	counts = slices.Clone(counts)
	size := len(counts)
	var want []byte
	outs := make([]guarded, size)
	ins := make([][]byte, size)
	offsets := make([]int, size)
	for r := range ins {
		ins[r] = elements(rng, tensor.Uint8, int(counts[r]), false)
		offsets[r] = len(want)
		want = append(want, ins[r]...)
	}
	for r := range outs {
		outs[r] = newGuarded(make([]byte, len(want)))
		if inPlace {
			place := outs[r].data()[offsets[r]:][:counts[r]]
			copy(place, ins[r])
			ins[r] = place
		}
	}
	return job{
		name:  fmt.Sprintf("allgather of %v bytes, in place %v", counts, inPlace),
		start: func(l *Lane) Op { return l.Allgather(ins[l.rank], outs[l.rank].data(), counts) },
		check: func(r int) error { return outs[r].expect(r, want) },
	}
}

func broadcastJob(rng *rand.Rand, size, root, n int) job {
	bufs := make([]guarded, size)
	for r := range bufs {
		bufs[r] = newGuarded(elements(rng, tensor.Uint8, n, false))
	}
	want := bytes.Clone(bufs[root].data())
	return job{
		name:  fmt.Sprintf("broadcast of %d bytes from %d to %d members", n, root, size),
		start: func(l *Lane) Op { return l.Broadcast(root, bufs[l.rank].data()) },
		check: func(r int) error { return bufs[r].expect(r, want) },
	}
}
