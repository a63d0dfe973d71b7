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

// quantisedTensor is a tensor that the members of a group allreduce in a form that keeps errors, again and again.
type quantisedTensor struct {
	wire  tensor.Wire
	n     int
	scale float64
	kept  [][]byte    // by member; entries are nil for a tensor that keeps nothing
	given []float64   // the exact sums of everything that was contributed
	got   []float64   // the sums of the results
	last  [][]float64 // each member's last contribution
	// result is the result of the last round.
	result []byte
}

func newQuantisedTensor(w tensor.Wire, size, n int, scale float64, keeps bool) *quantisedTensor {
	q := &quantisedTensor{wire: w, n: n, scale: scale, kept: make([][]byte, size), given: make([]float64, n),
		got: make([]float64, n)}
	for m := range q.kept {
		if keeps {
			q.kept[m] = make([]byte, 4*n)
		}
	}
	return q
}

// round is an allreduce of random numbers, or of the same numbers again.
func (q *quantisedTensor) round(rng *rand.Rand, again, inPlace bool, start func(l *Lane, r reduction) Op) job {
	size := len(q.kept)
	if !again || q.last == nil {
		q.last = make([][]float64, size)
		for m := range q.last {
			q.last[m] = make([]float64, q.n)
			for i := range q.last[m] {
				q.last[m][i] = float64(float32(rng.NormFloat64()))
			}
		}
	}
	sources, outs := make([][]byte, size), make([]guarded, size)
	for m, x := range q.last {
		sources[m] = make([]byte, 4*q.n)
		for i := range x {
			encode64(tensor.Float32, sources[m][4*i:], x[i])
			q.given[i] += x[i] * q.scale
		}
		outs[m] = newGuarded(sources[m])
		if inPlace {
			sources[m] = outs[m].data()
		}
	}
	var first []byte
	seen := 0
	return job{
		name: fmt.Sprintf("%d float32 as %v, in place %v, %d members", q.n, q.wire, inPlace, size),
		start: func(l *Lane) Op {
			return start(l, reduction{dt: tensor.Float32, op: tensor.Sum, in: sources[l.rank],
				out: outs[l.rank].data(), scale: q.scale, wire: q.wire, kept: q.kept[l.rank]})
		},
		check: func(m int) error {
			if seen++; seen == 1 {
				q.result = slices.Clone(outs[m].data())
				for i := range q.n {
					q.got[i] += decode64(tensor.Float32, q.result[4*i:])
				}
				first = q.result
			}
			return outs[m].expect(m, first)
		},
	}
}

// owed is the sum of all members' kept errors of element i.
func (q *quantisedTensor) owed(i int) (sum float64) {
	for _, kept := range q.kept {
		if kept != nil {
			sum += decode64(tensor.Float32, kept[4*i:])
		}
	}
	return sum
}

// quantised starts allreduceQuantised, also for lengths for which it would not be chosen. Over several hosts it does so
// inside allreduceHierarchical.
func quantised(l *Lane, r reduction) Op {
	if l.hier != nil {
		return chosen(l, r)
	}
	l.begin()
	return l.allreduceQuantised.start(l, r)
}

// keeping are the forms that keep errors.
var keeping = []tensor.Wire{tensor.WireInt8, tensor.WireFloat8}

func TestAllKeepingFormsAreTried(t *testing.T) {
	for w := range tensor.Wire(tensor.NumWires) {
		if w.Keeps() != slices.Contains(keeping, w) {
			t.Errorf("%v keeps errors: %v", w, w.Keeps())
		}
	}
}

var quantisedLengths = []int{1, 31, 32, 33, 1000, leastQuantised/4 + 1, 20_000}

// The members' kept errors plus their results equal their contributions. Nothing is lost, whichever member owns a part,
// for any lengths, in place or not. All members have the same bits (quantisedTensor.round).
func TestQuantisedAllreducesLoseNothing(t *testing.T) {
	forEachComm(t, 2, func(t *testing.T, o inproc.Options, size int) {
		g, rng := newGroup(t, size, o), random(t)
		var jobs []job
		var tensors []*quantisedTensor
		for _, n := range quantisedLengths {
			for _, w := range keeping {
				q := newQuantisedTensor(w, size, n, []float64{1, 1 / float64(size)}[rng.IntN(2)], true)
				tensors = append(tensors, q)
				for range 4 {
					jobs = append(jobs, q.round(rng, false, rng.IntN(2) == 0, quantised))
				}
			}
		}
		g.runScheduled(t, rng, jobs)
		for _, q := range tensors {
			for i := range q.n {
				all := q.got[i] + q.owed(i)*q.scale
				if limit := 1e-5 * float64(size); !(math.Abs(all-q.given[i]) <= limit) {
					t.Fatalf("%d elements: of element %d %v came out and %v is kept, of %v", q.n, i, q.got[i],
						q.owed(i)*q.scale, q.given[i])
				}
			}
		}
	})
}

// Over many steps the sum of the results stays within the error of one step of the exact sum, if errors are kept.
// Otherwise it drifts away.
func TestErrorFeedbackConverges(t *testing.T) {
	const n, rounds = 5000, 64
	// A block's largest number is about 4, and in the sum about 7. So these are the longest steps between numbers of an
	// operand and of the sum.
	steps := map[tensor.Wire][2]float64{tensor.WireInt8: {1. / 16, 1. / 8}, tensor.WireFloat8: {1. / 4, 1. / 2}}
	for _, w := range keeping {
		worst := map[bool]float64{}
		for _, keeps := range []bool{true, false} {
			g, rng := newGroup(t, 3, inproc.Options{Depth: 2}), rand.New(rand.NewPCG(3, 4))
			q := newQuantisedTensor(w, 3, n, 1, keeps)
			var jobs []job
			for range rounds {
				jobs = append(jobs, q.round(rng, true, true, quantised)) // the same each time: so no error evens out
			}
			g.runScheduled(t, rng, jobs)
			for i := range n {
				worst[keeps] = max(worst[keeps], math.Abs(q.got[i]-q.given[i]))
			}
		}
		// Two operands and the sum are rounded.
		once := 2*steps[w][0]/2 + steps[w][1]/2
		t.Logf("%v: after %d rounds the sums are off by %.3f with feedback, and by %.3f without", w, rounds,
			worst[true], worst[false])
		if worst[true] > 2*once || worst[false] < 8*once {
			t.Errorf("%v: errors of %v with feedback and %v without; those of one round are at most %v", w, worst[true],
				worst[false], once)
		}
	}
}

// A number that is not finite reaches all members, and is forgotten afterwards.
func TestQuantisedAllreduceOfExtremes(t *testing.T) {
	forEachComm(t, 2, func(t *testing.T, o inproc.Options, size int) {
		g, rng := newGroup(t, size, o), random(t)
		const n = leastQuantised
		q := newQuantisedTensor(keeping[rng.IntN(len(keeping))], size, n, 1, true)
		for _, bad := range []float64{math.Inf(1), math.NaN(), math.MaxFloat32} {
			g.runScheduled(t, rng, []job{q.round(rng, false, true, quantised)})
			m, i := rng.IntN(size), rng.IntN(n)
			q.last[m][i] = bad
			g.runScheduled(t, rng, []job{q.round(rng, true, rng.IntN(2) == 0, quantised)})
			if x := decode64(tensor.Float32, q.result[4*i:]); x == x && o.Hosts == nil {
				t.Errorf("%v became %v", bad, x)
			}
			g.runScheduled(t, rng, []job{q.round(rng, false, true, quantised)})
			for i := range n {
				x, owed := decode64(tensor.Float32, q.result[4*i:]), q.owed(i)
				if !(math.Abs(x) < 1e6) || !(math.Abs(owed) < 1e6) {
					t.Fatalf("an allreduce after %v: element %d is %v, and %v is kept", bad, i, x, owed)
				}
			}
		}
	})
}
