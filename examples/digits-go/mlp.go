package main

import (
	"math"
	"math/rand/v2"

	"github.com/gorovod/gorovod/examples/data"
)

const (
	inputs  = data.Pixels
	hidden  = 64
	classes = 10
)

// network is a perceptron with one hidden layer: softmax(w2·relu(w1·x + b1) + b2).
// Matrices are stored row by row, a row for each output.
type network struct {
	w1, b1, w2, b2 []float32
}

func newNetwork() network {
	return network{
		w1: make([]float32, hidden*inputs),
		b1: make([]float32, hidden),
		w2: make([]float32, classes*hidden),
		b2: make([]float32, classes),
	}
}

// params names the network's parts, in the order in which all ranks visit them.
func (n network) params() []param {
	return []param{{"w1", n.w1}, {"b1", n.b1}, {"w2", n.w2}, {"b2", n.b2}}
}

type param struct {
	name   string
	values []float32
}

// randomize sets the weights as Glorot and Bengio (2010) propose, and no bias.
func (n network) randomize(rng *rand.Rand) {
	fill := func(w []float32, in, out int) {
		limit := math.Sqrt(6 / float64(in+out))
		for i := range w {
			w[i] = float32((2*rng.Float64() - 1) * limit)
		}
	}
	fill(n.w1, inputs, hidden)
	fill(n.w2, hidden, classes)
}

// forward returns the hidden layer's output and each class's probability.
func (n network) forward(x *[inputs]float32) (h [hidden]float32, p [classes]float32) {
	for j := range h {
		h[j] = max(0, n.b1[j]+dot(n.w1[j*inputs:][:inputs], x[:]))
	}
	for k := range p {
		p[k] = n.b2[k] + dot(n.w2[k*hidden:][:hidden], h[:])
	}
	softmax(&p)
	return h, p
}

// classify returns the most probable digit.
func (n network) classify(x *[inputs]float32) int {
	_, p := n.forward(x)
	best := 0
	for k := range p {
		if p[k] > p[best] {
			best = k
		}
	}
	return best
}

// gradients writes into grad the gradients of the batch's mean cross-entropy,
// which it returns.
func (n network) gradients(grad network, batch []data.Digit) float32 {
	for _, g := range grad.params() {
		clear(g.values)
	}
	share := 1 / float32(len(batch))
	var loss float32
	for i := range batch {
		d := &batch[i]
		h, p := n.forward(&d.Image)
		loss -= share * float32(math.Log(float64(max(p[d.Label], 1e-12))))

		var dh [hidden]float32
		for k := range p {
			dk := p[k]
			if k == d.Label {
				dk--
			}
			dk *= share
			grad.b2[k] += dk
			axpy(dk, h[:], grad.w2[k*hidden:][:hidden])
			axpy(dk, n.w2[k*hidden:][:hidden], dh[:])
		}
		for j := range h {
			if h[j] > 0 {
				grad.b1[j] += dh[j]
				axpy(dh[j], d.Image[:], grad.w1[j*inputs:][:inputs])
			}
		}
	}
	return loss
}

// step moves the network against its gradients, with momentum 0.9.
func (n network) step(grad, velocity network, rate float32) {
	g, v := grad.params(), velocity.params()
	for i, p := range n.params() {
		for j := range p.values {
			v[i].values[j] = 0.9*v[i].values[j] + g[i].values[j]
			p.values[j] -= rate * v[i].values[j]
		}
	}
}

func dot(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// axpy adds a·x to y.
func axpy(a float32, x, y []float32) {
	for i := range x {
		y[i] += a * x[i]
	}
}

func softmax(p *[classes]float32) {
	top := p[0]
	for _, v := range p {
		top = max(top, v)
	}
	var sum float32
	for k := range p {
		p[k] = float32(math.Exp(float64(p[k] - top)))
		sum += p[k]
	}
	for k := range p {
		p[k] /= sum
	}
}
