package collective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/transport/inproc"
)

// forEachWire runs f on worlds that use a Comm, for each form.
func forEachWire(t *testing.T, f func(t *testing.T, g *group, rng *rand.Rand, o inproc.Options, w tensor.Wire)) {
	forEachComm(t, 2, func(t *testing.T, o inproc.Options, size int) {
		for _, w := range []tensor.Wire{tensor.WireFloat16, tensor.WireBFloat16} {
			f(t, newGroup(t, size, o), random(t), o, w)
		}
	})
}

// compressedJob adds ins in the form w and calls check with each member's result;
// all must be the same, bit for bit.
func compressedJob(a algorithm, w tensor.Wire, dt tensor.DType, ins [][]float64, scale float64, inPlace bool,
	check func(got []float64) error) job {
	size, n := len(ins), len(ins[0])
	sources, outs := make([][]byte, size), make([]guarded, size)
	for r := range ins {
		sources[r] = make([]byte, n*dt.Size())
		for i, f := range ins[r] {
			encode64(dt, sources[r][i*dt.Size():], f)
		}
		outs[r] = newGuarded(sources[r])
		if inPlace {
			sources[r] = outs[r].data()
		}
	}
	var first []byte
	return job{
		name: fmt.Sprintf("%s of %d %v as %v, scale %v, in place %v, %d members", a.name, n, dt, w, scale,
			inPlace, size),
		start: func(l *Lane) Op {
			return a.start(l, reduction{dt: dt, op: tensor.Sum, in: sources[l.rank], out: outs[l.rank].data(),
				scale: scale, wire: w})
		},
		check: func(r int) error {
			if first == nil {
				first = slices.Clone(outs[r].data())
			}
			if err := outs[r].expect(r, first); err != nil {
				return fmt.Errorf("not the same bits: %w", err)
			}
			got := make([]float64, n)
			for i := range got {
				got[i] = decode64(dt, first[i*dt.Size():])
			}
			return check(got)
		},
	}
}

// epsilon is half the distance of adjacent numbers of a form, relative to their size.
func epsilon(w tensor.Wire) float64 {
	if w == tensor.WireBFloat16 {
		return 0x1p-8
	}
	return 0x1p-11
}

// roundings bounds how often a sum has been rounded for the wire: each operand once at each hop of a ring, and the
// result once.
func roundings(size int) float64 { return float64(size + 1) }

func TestCompressedSumsAreNearAndAgree(t *testing.T) {
	forEachWire(t, func(t *testing.T, g *group, rng *rand.Rand, o inproc.Options, w tensor.Wire) {
		size := len(g.lanes)
		var jobs []job
		for _, a := range algorithms(o) {
			for _, dt := range []tensor.DType{tensor.Float32, tensor.Float64} {
				for _, n := range []int{1, 2, size - 1, size, 33, testPiece*size + 5} {
					jobs = append(jobs, nearJob(rng, a, size, w, dt, n))
				}
			}
		}
		g.runScheduled(t, rng, jobs)
	})
}

func nearJob(rng *rand.Rand, a algorithm, size int, w tensor.Wire, dt tensor.DType, n int) job {
	scale := []float64{1, 1 / float64(size)}[rng.IntN(2)]
	ins, sums, sizes := make([][]float64, size), make([]float64, n), make([]float64, n)
	for r := range ins {
		ins[r] = make([]float64, n)
		for i := range ins[r] {
			x := float64(float32(rng.NormFloat64()))
			ins[r][i] = x
			sums[i] += x * scale
			sizes[i] += math.Abs(x) * scale
		}
	}
	return compressedJob(a, w, dt, ins, scale, rng.IntN(2) == 0, func(got []float64) error {
		for i, x := range got {
			// The last term is for the precision that a float16 loses below its normal numbers.
			limit := sizes[i]*epsilon(w)*roundings(size)*1.01 + 0x1p-24*roundings(size)
			if !(math.Abs(x-sums[i]) <= limit) {
				return fmt.Errorf("element %d is %v, want %v ± %v", i, x, sums[i], limit)
			}
		}
		return nil
	})
}

// A form does not change values that it holds exactly: small integers, and a mean of a power of two of them. Other
// values must be rounded, because otherwise nothing was compressed.
func TestCompressionRoundsToItsForm(t *testing.T) {
	forEachWire(t, func(t *testing.T, g *group, rng *rand.Rand, o inproc.Options, w tensor.Wire) {
		size := len(g.lanes)
		var jobs []job
		for _, a := range algorithms(o) {
			ins := make([][]float64, size)
			fine := make([][]float64, size)
			for r := range ins {
				for i := range 200 {
					ins[r] = append(ins[r], float64((i+r)%8))
				}
				fine[r] = slices.Repeat([]float64{1 + 0x1p-12}, 50)
			}
			jobs = append(jobs, compressedJob(a, w, tensor.Float32, ins, 0.5, false, func(got []float64) error {
				for i, x := range got {
					want := 0.0
					for r := range ins {
						want += ins[r][i] / 2
					}
					if x != want {
						return fmt.Errorf("element %d is %v, want %v", i, x, want)
					}
				}
				return nil
			}))
			jobs = append(jobs, compressedJob(a, w, tensor.Float32, fine, 1, true, func(got []float64) error {
				for i, x := range got {
					if x >= float64(size)*(1+0x1p-12) {
						return fmt.Errorf("element %d is %v: it has not been rounded on the wire", i, x)
					}
				}
				return nil
			}))
		}
		g.runScheduled(t, rng, jobs)
	})
}

// As with Horovod's compression, values beyond the range of float16 become infinite, opposite infinities make NaN, and
// a NaN stays NaN.
func TestCompressionOfExtremes(t *testing.T) {
	forEachWire(t, func(t *testing.T, g *group, rng *rand.Rand, o inproc.Options, w tensor.Wire) {
		size := len(g.lanes)
		var jobs []job
		for _, a := range algorithms(o) {
			ins := make([][]float64, size)
			for r := range ins {
				ins[r] = []float64{1000, 0, 0, 60000, -1e30, 0}
			}
			ins[0][1] = math.NaN()
			ins[0][2], ins[size-1][2] = math.Inf(1), math.Inf(-1)
			jobs = append(jobs, compressedJob(a, w, tensor.Float32, ins, 1, false, func(got []float64) error {
				want := []float64{1000 * float64(size), math.NaN(), math.NaN(), 60000 * float64(size),
					-1e30 * float64(size), 0}
				for i, x := range got {
					limit := math.Abs(want[i]) * epsilon(w) * roundings(size)
					near := math.Abs(x-want[i]) <= limit || math.IsNaN(x) && math.IsNaN(want[i])
					switch {
					case w == tensor.WireFloat16 && i == 3: // a sum that is not sent stays finite
						near = near || math.IsInf(x, 1)
					case w == tensor.WireFloat16 && i == 4:
						near = math.IsInf(x, -1)
					}
					if !near {
						return fmt.Errorf("element %d is %v, want %v", i, x, want[i])
					}
				}
				return nil
			}))
		}
		g.runScheduled(t, rng, jobs)
	})
}

// Only sums of the wide floats are compressed: everything else has the same bits as on a lane without compression.
func TestCompressionLeavesTheRestAlone(t *testing.T) {
	forEachWire(t, func(t *testing.T, g *group, rng *rand.Rand, _ inproc.Options, w tensor.Wire) {
		var jobs []job
		for dt := range tensor.DType(tensor.NumReducible) {
			for _, op := range []tensor.ReduceOp{tensor.Sum, tensor.Product, tensor.Min, tensor.Max} {
				if op == tensor.Sum && (dt == tensor.Float32 || dt == tensor.Float64) {
					continue
				}
				a := algorithm{"chosen as " + w.String(), always, func(l *Lane, r reduction) Op {
					return l.AllreduceAs(w, r.dt, r.op, r.in, r.out, r.scale, nil)
				}}
				jobs = append(jobs, allreduceJob(rng, a, len(g.lanes), dt, op, 100, true, false))
			}
		}
		g.runScheduled(t, rng, jobs)
	})
}
