package table

import (
	"math"
	"strings"
)

// Optimizer names the rule by which a gradient changes a row.
type Optimizer string

// The optimizers. g is the gradient of one weight w, lr the learning rate.
const (
	SGD            Optimizer = "sgd"             // w -= lr·g
	Adagrad        Optimizer = "adagrad"         // s += g²; w -= lr·g / (√s + eps)
	RowwiseAdagrad Optimizer = "rowwise_adagrad" // s, one a row, += the mean of the row's g²; w as for Adagrad
	Adam           Optimizer = "adam"            // see adam
	FTRL           Optimizer = "ftrl"            // see ftrl
)

var optimizers = []Optimizer{SGD, Adagrad, RowwiseAdagrad, Adam, FTRL}

func (o Optimizer) known() bool {
	for _, k := range optimizers {
		if o == k {
			return true
		}
	}
	return false
}

func optimizerNames() string {
	names := make([]string, len(optimizers))
	for i, o := range optimizers {
		names[i] = string(o)
	}
	return strings.Join(names, ", ")
}

// rule is an optimizer with its numbers. Each of its products is rounded to float32 before it is added to anything.
type rule interface {
	// states is how many numbers the rule keeps with a row of dim weights.
	states(dim int) int
	// begin prepares a new row's numbers, which are 0.
	begin(state []float32)
	// advance is called once before the rows of each update.
	advance(rate float32)
	// step changes one row's weights.
	step(w, state, g []float32)
	// powers are the numbers that the rule keeps for all rows.
	powers() []*float64
}

// rowsAlone is embedded in rules that keep nothing for all rows.
type rowsAlone struct{}

func (rowsAlone) powers() []*float64 { return nil }

func newRule(o *Options) rule {
	switch o.Optimizer {
	case SGD:
		return &sgd{}
	case Adagrad:
		return &adagrad{initial: o.InitialAccumulator, epsilon: o.Epsilon}
	case RowwiseAdagrad:
		return &rowwiseAdagrad{initial: o.InitialAccumulator, epsilon: o.Epsilon}
	case Adam:
		return &adam{beta1: o.Beta1, beta2: o.Beta2, epsilon: o.Epsilon, power1: 1, power2: 1}
	case FTRL:
		return &ftrl{beta: o.Beta, l1: o.L1, l2: o.L2}
	}
	panic("table: unknown optimizer " + string(o.Optimizer))
}

// root is the exact square root, rounded once.
func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

type sgd struct {
	rowsAlone
	rate float32
}

func (*sgd) states(int) int         { return 0 }
func (*sgd) begin([]float32)        {}
func (r *sgd) advance(rate float32) { r.rate = rate }

func (r *sgd) step(w, _, g []float32) {
	for i := range w {
		w[i] -= float32(r.rate * g[i])
	}
}

type adagrad struct {
	rowsAlone
	initial, epsilon, rate float32
}

func (*adagrad) states(dim int) int     { return dim }
func (r *adagrad) advance(rate float32) { r.rate = rate }

func (r *adagrad) begin(s []float32) {
	for i := range s {
		s[i] = r.initial
	}
}

func (r *adagrad) step(w, s, g []float32) {
	for i := range w {
		s[i] += float32(g[i] * g[i])
		w[i] -= float32(r.rate*g[i]) / (root(s[i]) + r.epsilon)
	}
}

type rowwiseAdagrad struct {
	rowsAlone
	initial, epsilon, rate float32
}

func (*rowwiseAdagrad) states(int) int         { return 1 }
func (r *rowwiseAdagrad) begin(s []float32)    { s[0] = r.initial }
func (r *rowwiseAdagrad) advance(rate float32) { r.rate = rate }

func (r *rowwiseAdagrad) step(w, s, g []float32) {
	var sum float32
	for i := range g {
		sum += float32(g[i] * g[i])
	}
	s[0] += sum / float32(len(g))
	rate := r.rate / (root(s[0]) + r.epsilon)
	for i := range w {
		w[i] -= float32(rate * g[i])
	}
}

// adam is Adam as torch.optim.SparseAdam has it: only rows with a gradient change, and all rows count the same updates.
//
//	m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g²
//	w -= lr·√(1-β2ᵗ)/(1-β1ᵗ) · m / (√v + eps)
//
// t is the number of the table's updates. The powers are products of float64, and the factor is rounded once.
type adam struct {
	beta1, beta2, epsilon, rate float32
	power1, power2              float64 // β1ᵗ, β2ᵗ
}

func (*adam) states(dim int) int { return 2 * dim }
func (*adam) begin([]float32)    {}

func (r *adam) powers() []*float64 { return []*float64{&r.power1, &r.power2} }

func (r *adam) advance(rate float32) {
	r.power1 *= float64(r.beta1)
	r.power2 *= float64(r.beta2)
	r.rate = float32(float64(rate) * math.Sqrt(1-r.power2) / (1 - r.power1))
}

func (r *adam) step(w, s, g []float32) {
	m, v := s[:len(w)], s[len(w):]
	for i := range w {
		m[i] = float32(r.beta1*m[i]) + float32((1-r.beta1)*g[i])
		v[i] = float32(r.beta2*v[i]) + float32((1-r.beta2)*float32(g[i]*g[i]))
		w[i] -= float32(r.rate*m[i]) / (root(v[i]) + r.epsilon)
	}
}

// ftrl is FTRL-Proximal (McMahan et al., "Ad Click Prediction", 2013, algorithm 1). The weights of a new row have an
// effect until its first update, which makes them anew from z and n.
//
//	σ = (√(n+g²) - √n) / lr, z += g - σ·w, n += g²
//	w = 0 if |z| ≤ l1, else -(z - sign(z)·l1) / ((beta + √n) / lr + l2)
type ftrl struct {
	rowsAlone
	beta, l1, l2, rate float32
}

func (*ftrl) states(dim int) int     { return 2 * dim }
func (*ftrl) begin([]float32)        {}
func (r *ftrl) advance(rate float32) { r.rate = rate }

func (r *ftrl) step(w, s, g []float32) {
	z, n := s[:len(w)], s[len(w):]
	for i := range w {
		before := root(n[i])
		n[i] += float32(g[i] * g[i])
		after := root(n[i])
		z[i] += g[i] - float32((after-before)/r.rate*w[i])
		switch sign := z[i]; {
		case sign > r.l1:
			w[i] = -(z[i] - r.l1) / ((r.beta+after)/r.rate + r.l2)
		case sign < -r.l1:
			w[i] = -(z[i] + r.l1) / ((r.beta+after)/r.rate + r.l2)
		case sign == sign:
			w[i] = 0
		default:
			w[i] = sign // a NaN stays one, so that it can be found
		}
	}
}
