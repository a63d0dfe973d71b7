package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gorovod/gorovod/examples/data"
	"github.com/gorovod/gorovod/hvd"
)

const (
	hidden  = 24
	classes = 10
	weights = hidden*(data.Pixels+1) + classes*(hidden+1)

	// batch is the number of images in a step. Each image is a part, and the ranks share the parts.
	batch = 24
	// grain is the unit of gradients. They are whole multiples of it, so their sum does not depend on the order.
	grain = 1.0 / (1 << 32)

	trained = 1500 // so many digits are for training, the others for accuracy
)

// model is the state: a perceptron with one hidden layer that learns handwritten
// digits, and its progress. Gradients are added up as whole numbers, so the state after
// each step has the same bits on any number of ranks.
type model struct {
	step int64
	// values are the weights, and then each one's velocity.
	values []float32

	savedStep   int64
	savedValues []float32

	digits []data.Digit
	order  []int // of the images in this pass
	pass   int64
}

func newModel() (*model, error) {
	digits, err := data.Digits()
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(0, 0))
	rng.Shuffle(len(digits), func(i, j int) { digits[i], digits[j] = digits[j], digits[i] })
	m := &model{values: make([]float32, 2*weights), digits: digits, pass: -1}
	for i := range weights {
		m.values[i] = float32(rng.Float64()-0.5) / 4
	}
	m.Save()
	return m, nil
}

func (m *model) Save() { m.savedStep, m.savedValues = m.step, slices.Clone(m.values) }

func (m *model) Restore() { m.step, m.values = m.savedStep, slices.Clone(m.savedValues) }

func (m *model) Sync(ctx context.Context) error {
	step := []int64{m.step}
	if err := hvd.Broadcast(ctx, "step", step, 0); err != nil {
		return err
	}
	if err := hvd.Broadcast(ctx, "values", m.values, 0); err != nil {
		return err
	}
	m.step = step[0]
	m.Save()
	return nil
}

// MarshalBinary and UnmarshalBinary are for commits to a disk.
func (m *model) MarshalBinary() ([]byte, error) {
	b, err := binary.Append(nil, binary.LittleEndian, m.savedStep)
	if err != nil {
		return nil, err
	}
	return binary.Append(b, binary.LittleEndian, m.savedValues)
}

func (m *model) UnmarshalBinary(text []byte) error {
	r := bytes.NewReader(text)
	if err := binary.Read(r, binary.LittleEndian, &m.step); err != nil {
		return err
	}
	return binary.Read(r, binary.LittleEndian, m.values)
}

func (m *model) hash() uint64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, m.step)
	binary.Write(h, binary.LittleEndian, m.values)
	return h.Sum64()
}

// image is the part-th image of this step.
func (m *model) image(part int) *data.Digit {
	const steps = trained / batch
	if pass := m.step / steps; pass != m.pass {
		m.pass, m.order = pass, rand.New(rand.NewPCG(1, uint64(pass))).Perm(trained)
	}
	return &m.digits[m.order[int(m.step%steps)*batch+part]]
}

// advance makes a step. sum adds up the gradients of all ranks.
func (m *model) advance(rank, size int, sum func([]int64) error) error {
	total := make([]int64, weights)
	grad := make([]float32, weights)
	for part := rank; part < batch; part += size {
		clear(grad)
		m.gradient(m.image(part), grad)
		for i, g := range grad {
			total[i] += int64(math.Round(float64(g) / grain))
		}
	}
	if err := sum(total); err != nil {
		return err
	}
	const rate, momentum, decay = 0.05, 0.9, 1e-4
	w, v := m.values[:weights], m.values[weights:]
	for i, n := range total {
		v[i] = float32(momentum*v[i]) + float32(float64(n)*(grain/batch)) + float32(decay*w[i])
		w[i] -= float32(rate * v[i])
	}
	m.step++
	return nil
}

// layers returns the rows of weights of both layers. Each has a row for each output, its bias last.
func layers(w []float32) (first, second func(i int) []float32) {
	const in, out = data.Pixels + 1, hidden + 1
	return func(i int) []float32 { return w[i*in:][:in] }, func(i int) []float32 { return w[hidden*in+i*out:][:out] }
}

// forward returns the hidden layer's output, and the probability of each class.
func (m *model) forward(x []float32) (h [hidden]float32, p [classes]float32) {
	first, second := layers(m.values)
	for i := range h {
		h[i] = max(0, linear(first(i), x))
	}
	top := float32(math.Inf(-1))
	for i := range p {
		p[i] = linear(second(i), h[:])
		top = max(top, p[i])
	}
	var all float32
	for i := range p {
		p[i] = float32(math.Exp(float64(p[i] - top)))
		all += p[i]
	}
	for i := range p {
		p[i] /= all
	}
	return h, p
}

// gradient adds to grad the gradient of the cross-entropy of one image.
func (m *model) gradient(d *data.Digit, grad []float32) {
	h, p := m.forward(d.Image[:])
	_, second := layers(m.values)
	first2, second2 := layers(grad)
	var back [hidden]float32
	p[d.Label]--
	for i, e := range p {
		w, g := second(i), second2(i)
		for j := range h {
			g[j] += float32(e * h[j])
			back[j] += float32(e * w[j])
		}
		g[hidden] += e
	}
	for i, e := range back {
		if h[i] <= 0 {
			continue
		}
		g := first2(i)
		for j, x := range d.Image {
			g[j] += float32(e * x)
		}
		g[data.Pixels] += e
	}
}

// linear is a row's product with x, plus its bias. Each product is rounded by itself, so
// that no processor fuses it with the sum.
func linear(row, x []float32) float32 {
	sum := row[len(x)]
	for i, v := range x {
		sum += float32(row[i] * v)
	}
	return sum
}

// accuracy is the share of right answers on the digits without training.
func (m *model) accuracy() float64 {
	right := 0
	for i := trained; i < len(m.digits); i++ {
		_, p := m.forward(m.digits[i].Image[:])
		if slices.Index(p[:], slices.Max(p[:])) == m.digits[i].Label {
			right++
		}
	}
	return float64(right) / float64(len(m.digits)-trained)
}
