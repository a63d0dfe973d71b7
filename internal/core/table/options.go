package table

import (
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// Init says how the weights of a new row are made.
type Init string

// The ways.
const (
	Normal  Init = "normal"  // normal, with mean 0 and standard deviation Scale
	Uniform Init = "uniform" // uniform, at least -Scale and less than Scale
	Zeros   Init = "zeros"
)

// Options describe a table. They are the same on all ranks that have a part of it.
type Options struct {
	Name string
	Dim  int // the length of a row
	// Keys, if not 0, says that only the keys from 0 to Keys-1 are possible.
	Keys  int64
	Seed  uint64
	Init  Init
	Scale float32
	// Optimizer changes rows; Rate is its learning rate where a push has none of its own.
	Optimizer Optimizer
	Rate      float32
	// The numbers of Optimizer; those without a meaning for it are 0.
	Epsilon            float32 // Adagrad, RowwiseAdagrad, Adam
	InitialAccumulator float32 // Adagrad, RowwiseAdagrad
	Beta1, Beta2       float32 // Adam
	Beta               float32 // FTRL
	L1, L2             float32 // FTRL

	// Admit is the number of a key's pulls, each of all ranks together, with which it gets a row; 0 and 1: the first
	// one. Only pulls to train count. Until then a key reads as zeros, and its gradients are dropped.
	Admit uint32
	// Idle, if not 0, is for how many updates of the table a row stays that no rank pulls or changes. A row with Keep
	// pulls or more stays for ever, unless Keep is 0. Rows go a little later: within an eighth of Idle, and at most
	// 1,024 updates.
	Idle, Keep uint32
	// Rows, if not 0, is about how many rows all ranks keep together. The rows that were not used for longest go. Each
	// slot has an equal share, which it may exceed by an eighth, and during one update.
	Rows int64
}

const (
	// MaxName is the most bytes of a name.
	MaxName = 1 << 10
	// MaxDim is the longest row.
	MaxDim = 1 << 16
)

// Check says what is wrong with o, if something is.
func (o *Options) Check() error {
	switch {
	case o.Name == "" || len(o.Name) > MaxName:
		return fmt.Errorf("the name has %d bytes; 1 to %d are possible", len(o.Name), MaxName)
	case o.Dim < 1 || o.Dim > MaxDim:
		return fmt.Errorf("dim is %d; 1 to %d are possible", o.Dim, MaxDim)
	case o.Keys < 0:
		return fmt.Errorf("num_embeddings is %d; it must be positive, or 0 for keys of any value", o.Keys)
	case o.Init != Normal && o.Init != Uniform && o.Init != Zeros:
		return fmt.Errorf("init is %q; %q, %q and %q are possible", o.Init, Normal, Uniform, Zeros)
	case !o.Optimizer.known():
		return fmt.Errorf("optimizer is %q; possible are %s", o.Optimizer, optimizerNames())
	}
	for _, n := range o.numbers() {
		if v := float64(n.value); math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || n.below1 && v >= 1 {
			return fmt.Errorf("%s is %v; it must be a number from 0 on%s", n.name, n.value,
				map[bool]string{true: ", below 1"}[n.below1])
		}
	}
	if o.Optimizer == FTRL && o.Rate == 0 {
		return fmt.Errorf("lr is 0; ftrl divides by it")
	}
	switch least := int64(leastShare * slots.Count); {
	case o.Rows < 0 || o.Rows > 0 && o.Rows < least:
		return fmt.Errorf("max_rows is %d; it must be %d or more, or 0 for any number of rows", o.Rows, least)
	case o.Keep > 0 && o.Idle == 0:
		return fmt.Errorf("evict_keep is %d, but rows are not evicted by their age: evict_idle is 0", o.Keep)
	}
	return nil
}

// number is one of the numbers of Options under the name that front ends give it.
type number struct {
	name   string
	value  float32
	below1 bool
}

func (o *Options) numbers() []number {
	return []number{{"scale", o.Scale, false}, {"lr", o.Rate, false}, {"eps", o.Epsilon, false},
		{"initial_accumulator", o.InitialAccumulator, false}, {"beta1", o.Beta1, true}, {"beta2", o.Beta2, true},
		{"beta", o.Beta, false}, {"l1", o.L1, false}, {"l2", o.L2, false}}
}

// Difference names the first option in which another rank's Options differ from o, and both values; "" if none does.
func (o *Options) Difference(other *Options) (name string, own, others any) {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"name", o.Name, other.Name}, {"dim", o.Dim, other.Dim}, {"num_embeddings", o.Keys, other.Keys},
		{"optimizer", o.Optimizer, other.Optimizer}, {"seed", o.Seed, other.Seed}, {"init", o.Init, other.Init},
		{"admit_after", o.Admit, other.Admit}, {"evict_idle", o.Idle, other.Idle}, {"evict_keep", o.Keep, other.Keep},
		{"max_rows", o.Rows, other.Rows},
	} {
		if f.a != f.b {
			return f.name, f.a, f.b
		}
	}
	mine, its := o.numbers(), other.numbers()
	for i := range mine {
		if mine[i].value != its[i].value {
			return mine[i].name, mine[i].value, its[i].value
		}
	}
	return "", nil, nil
}

// Complete gives the numbers of o that are negative their defaults, and those without a meaning for its optimizer 0.
// The optimizer's defaults are those of torch.optim; FTRL's are beta 1 and no regularisation.
func (o *Options) Complete() {
	var d Options
	d.Scale, d.Rate = 1, 0.01
	if o.Dim > 0 {
		d.Scale = float32(1 / math.Sqrt(float64(o.Dim)))
	}
	switch o.Optimizer {
	case Adagrad, RowwiseAdagrad:
		d.Epsilon = 1e-10
	case Adam:
		d.Rate, d.Epsilon, d.Beta1, d.Beta2 = 0.001, 1e-8, 0.9, 0.999
	case FTRL:
		d.Beta = 1
	}
	for _, f := range []struct {
		value    *float32
		standard float32
		counts   bool
	}{
		{&o.Scale, d.Scale, o.Init != Zeros},
		{&o.Rate, d.Rate, true},
		{&o.Epsilon, d.Epsilon, d.Epsilon > 0},
		{&o.InitialAccumulator, 0, o.Optimizer == Adagrad || o.Optimizer == RowwiseAdagrad},
		{&o.Beta1, d.Beta1, o.Optimizer == Adam},
		{&o.Beta2, d.Beta2, o.Optimizer == Adam},
		{&o.Beta, d.Beta, o.Optimizer == FTRL},
		{&o.L1, 0, o.Optimizer == FTRL},
		{&o.L2, 0, o.Optimizer == FTRL},
	} {
		if *f.value < 0 {
			*f.value = f.standard
		}
		if !f.counts {
			*f.value = 0
		}
	}
}
