package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// naiveByHost is the result that a deterministic lane promises: first the members of each host in their order, then the
// hosts in theirs. All sent data is rounded.
func naiveByHost(w tensor.Wire, dt tensor.DType, op tensor.ReduceOp, ins [][]byte, hosts [][]int,
	scale float64) []byte {
	var sums [][]byte
	if hosts == nil {
		for _, in := range ins {
			sums = append(sums, bytes.Clone(in))
		}
	}
	for _, members := range hosts {
		var own [][]byte
		for _, m := range members {
			own = append(own, ins[m])
		}
		sums = append(sums, naiveAllreduce(dt, op, own, 1))
	}
	for _, sum := range sums {
		naiveRound(w, dt, sum)
	}
	out := naiveAllreduce(dt, op, sums, scale)
	naiveRound(w, dt, out)
	return out
}

// narrow are the types of elements on the wire.
var narrow = map[tensor.Wire]tensor.DType{tensor.WireFloat16: tensor.Float16, tensor.WireBFloat16: tensor.BFloat16}

// naiveRound rounds elements to values that the wire can hold, in float32.
func naiveRound(w tensor.Wire, dt tensor.DType, p []byte) {
	if w == tensor.WireAsIs {
		return
	}
	for ; len(p) > 0; p = p[dt.Size():] {
		var wire [2]byte
		store(wire[:], 2, encode32(narrow[w], float32(decode64(dt, p))))
		encode64(dt, p, decode64(narrow[w], wire[:]))
	}
}

// piecesJob reduces the bytes from lo to hi of ins, whose reduction is want.
func piecesJob(a algorithm, w tensor.Wire, dt tensor.DType, op tensor.ReduceOp, ins [][]byte, want []byte, lo, hi int,
	scale float64) job {
	outs := make([]guarded, len(ins))
	for r := range outs {
		outs[r] = newGuarded(ins[r][lo:hi])
	}
	return job{
		name: fmt.Sprintf("allreduce %s of %v, %v, on the wire %v, the bytes %d to %d", a.name, dt, op, w, lo, hi),
		start: func(l *Lane) Op {
			data := outs[l.rank].data()
			return a.start(l, reduction{dt: dt, op: op, in: data, out: data, scale: scale, wire: w})
		},
		check: func(r int) error { return outs[r].expect(r, want[lo:hi]) },
	}
}

// On a deterministic lane an element's bits do not depend on how the tensor is cut into operations, on its place in
// them, on the algorithm, or on the sizes of blocks, shards and pieces. Fusion and tuning change these.
func TestDeterministicLanesGiveTheSameBits(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow under the race detector")
	}
	for _, hosts := range append([][][]int{{{0}, {1}}, {{0}, {1}, {2}, {3}, {4}}}, topologies...) {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			rng := random(t)
			size := sizeOf(hosts)
			all := []algorithm{{"chosen", always, chosen}}
			if len(hosts) < size {
				all = append(all, hostsAlgorithms...)
			} else {
				hosts = nil
			}
			for variant := range 3 {
				g := newGroup(t, size, inproc.Options{Hosts: hosts}, Options{Deterministic: true})
				for _, l := range g.lanes {
					l.piece = lineBytes << variant
					if l.hier != nil {
						l.hier.block, l.hier.least = lineBytes<<(2*variant), lineBytes<<variant
					}
				}
				var jobs []job
				for _, dt := range floats {
					jobs = append(jobs, cutJobs(rng, all, dt, tensor.Sum, size, hosts)...)
					jobs = append(jobs, cutJobs(rng, all, dt, tensor.Product, size, hosts)...)
				}
				jobs = append(jobs, longJob(rng, hosts, size, messageBytes+3*testChunk))
				g.runScheduled(t, rng, jobs)
			}
		})
	}
}

// cutJobs reduces one tensor by each algorithm, cut at random places.
func cutJobs(rng *rand.Rand, all []algorithm, dt tensor.DType, op tensor.ReduceOp, size int,
	hosts [][]int) (jobs []job) {
	const scale = 1.0 / 3
	n := 20*testChunk/dt.Size() + rng.IntN(100)
	ins := make([][]byte, size)
	for r := range ins {
		ins[r] = elements(rng, dt, n, false)
	}
	w := tensor.Wire(rng.IntN(int(tensor.WireInt8))).For(dt, op) // engine.checkKeeping refuses int8
	want := naiveByHost(w, dt, op, ins, hosts, scale)
	for _, a := range all {
		for lo, hi := 0, 0; lo < len(want); lo = hi {
			hi = min(len(want), lo+dt.Size()*(1+rng.IntN(n>>rng.IntN(8))))
			jobs = append(jobs, piecesJob(a, w, dt, op, ins, want, lo, hi, scale))
		}
	}
	return jobs
}

// longJob reduces a tensor that is too long for combining all of it on every member.
func longJob(rng *rand.Rand, hosts [][]int, size, length int) job {
	ins := make([][]byte, size)
	for r := range ins {
		ins[r] = elements(rng, tensor.Float32, length/4, false)
	}
	want := naiveByHost(tensor.WireAsIs, tensor.Float32, tensor.Sum, ins, hosts, 1)
	return piecesJob(algorithm{"chosen", always, chosen}, tensor.WireAsIs, tensor.Float32, tensor.Sum, ins, want, 0,
		len(want), 1)
}

// A reducescatter has the bits of the allreduce. Unequal parts and unequal hosts change nothing.
func TestDeterministicReducescatter(t *testing.T) {
	for _, hosts := range append([][][]int{nil}, topologies...) {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			rng := random(t)
			size := 3
			if hosts != nil {
				size = sizeOf(hosts)
			}
			var jobs []job
			for _, dt := range floats {
				for _, n := range []int{0, 100, 5 * testChunk} {
					for _, p := range parts(rng, size, n/dt.Size()) {
						jobs = append(jobs, orderedScatterJob(rng, hosts, dt, p))
					}
				}
			}
			newGroup(t, size, inproc.Options{Hosts: hosts}, Options{Deterministic: true}).runScheduled(t, rng, jobs)
		})
	}
}

func orderedScatterJob(rng *rand.Rand, hosts [][]int, dt tensor.DType, parts []int) job {
	const scale = 1.0 / 3
	size, total := len(parts), 0
	counts, offsets := make([]int64, size), make([]int, size)
	for m, n := range parts {
		counts[m], offsets[m] = int64(n*dt.Size()), total*dt.Size()
		total += n
	}
	ins, outs := make([][]byte, size), make([]guarded, size)
	for r := range ins {
		ins[r] = elements(rng, dt, total, false)
		outs[r] = newGuarded(make([]byte, counts[r]))
	}
	want := naiveByHost(tensor.WireAsIs, dt, tensor.Sum, ins, hosts, scale)
	return job{
		name: fmt.Sprintf("reducescatter of %v %v", parts, dt),
		start: func(l *Lane) Op {
			return l.Reducescatter(dt, tensor.Sum, bytes.Clone(ins[l.rank]), outs[l.rank].data(), counts, scale)
		},
		check: func(r int) error { return outs[r].expect(r, want[offsets[r]:][:counts[r]]) },
	}
}

// All operations, with a goroutine for each rank: for the race detector.
func TestDeterministicMixtures(t *testing.T) {
	for _, hosts := range [][][]int{nil, topologies[1], topologies[3]} {
		rng := random(t)
		size := 3
		if hosts != nil {
			size = sizeOf(hosts)
		}
		o := inproc.Options{Hosts: hosts}
		newGroup(t, size, o, Options{Deterministic: true}).runConcurrently(t, mixture(rng, o, size, 60))
	}
}
