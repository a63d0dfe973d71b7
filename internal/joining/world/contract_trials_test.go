package world

import (
	"bytes"
	"fmt"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// trial is one operation on all ranks, and the expected outcome.
type trial struct {
	op      engine.Op      // the part that all ranks have in common; name and data come later
	shapes  []tensor.Shape // by rank
	splits  [][]int32      // by rank; Alltoall, Gather, Scatter
	ins     [][]byte       // by rank; never written
	inPlace bool           // the output is the input
	alloc   bool           // the engine asks for the output
	want    []outcome      // by rank
	equal   func(dt tensor.DType, got, want []byte) error
	alike   bool   // all ranks end with the same bits
	refusal string // not empty: every rank is refused, with a reason that begins like this
	code    engine.Code
}

// outcome is the expected result on a rank.
type outcome struct {
	data     []byte
	shape    tensor.Shape // of an output that the engine has asked for
	received []int32      // Alltoall
}

func (t *trial) String() string {
	s := fmt.Sprintf("%v of %v, shapes %v", t.op.Type, t.op.DType, t.shapes)
	switch t.op.Type {
	case operation.Allreduce, operation.Adasum, operation.Reducescatter:
		s += fmt.Sprintf(", %v, prescale %v, postscale %v", t.op.ReduceOp, t.op.Prescale, t.op.Postscale)
	case operation.Broadcast:
		s += fmt.Sprintf(", root %d", t.op.Root)
	case operation.Reduce:
		s += fmt.Sprintf(", root %d, %v, prescale %v, postscale %v", t.op.Root, t.op.ReduceOp, t.op.Prescale,
			t.op.Postscale)
	case operation.Alltoall:
		s += fmt.Sprintf(", splits %v", t.splits)
	case operation.Gather, operation.Scatter:
		s += fmt.Sprintf(", root %d, splits %v", t.op.Root, t.splits)
	}
	if t.inPlace {
		s += ", in place"
	}
	return s
}

// attempt is one rank's part in one run of a trial.
type attempt struct {
	trial *trial
	op    engine.Op
	entry *engine.Entry // nil if it was refused at once
	err   *engine.Error
	got   outcome
}

// prepare makes rank's operation with fresh memory.
func (t *trial) prepare(rank int, name string) *attempt {
	a := &attempt{trial: t, op: t.op}
	a.op.Name, a.op.Shape, a.op.In = name, t.shapes[rank], bytes.Clone(t.ins[rank])
	if t.splits != nil {
		a.op.Splits = t.splits[rank]
	}
	switch {
	case t.alloc:
		a.op.Alloc = func(s tensor.Shape, n int) ([]byte, error) {
			a.got.data, a.got.shape = make([]byte, n), s
			return a.got.data, nil
		}
		return a
	case t.inPlace:
		a.op.Out = a.op.In
	case t.refusal == "":
		a.op.Out = bytes.Repeat([]byte{0xa5}, len(t.want[rank].data))
	default:
		a.op.Out = make([]byte, len(a.op.In))
	}
	a.got.data = a.op.Out
	return a
}

// wait waits for the end of the operation.
func (a *attempt) wait() {
	if a.entry == nil {
		return
	}
	if !a.entry.Wait(limit) {
		a.err = &engine.Error{Code: engine.InProgress, Reason: "is not done"}
		return
	}
	a.err, a.got.received = a.entry.Err(), a.entry.ReceivedSplits()
	a.entry.Release()
}

// judge compares a rank's result with the expected one.
func (a *attempt) judge(rank int) error {
	t, err := a.trial, a.err
	if t.refusal != "" {
		switch {
		case err == nil:
			return fmt.Errorf("is done instead of refused with %q", t.refusal)
		case err.Code != t.code || !bytes.HasPrefix([]byte(err.Reason), []byte(t.refusal)):
			return fmt.Errorf("is refused with %d %q instead of %d %q", err.Code, err.Reason, t.code, t.refusal)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("fails: %d %w", err.Code, err)
	}
	want := t.want[rank]
	if err := t.equal(t.op.DType, a.got.data, want.data); err != nil {
		return err
	}
	if t.alloc && !a.got.shape.Equal(want.shape) {
		return fmt.Errorf("has shape %v instead of %v", a.got.shape, want.shape)
	}
	if fmt.Sprint(a.got.received) != fmt.Sprint(want.received) {
		return fmt.Errorf("has received %v instead of %v", a.got.received, want.received)
	}
	if !t.inPlace && !bytes.Equal(a.op.In, t.ins[rank]) {
		return fmt.Errorf("has changed its input")
	}
	return nil
}

// step is submitted at once: a group of that name, or a single trial.
type step struct {
	group  string
	trials []*trial
}

// factors are the prescale and postscale of the trials; all of pairs for one shape.
type factors struct{ pre, post float64 }

var (
	plain  = factors{1, 1}
	scaled = factors{0.5, 2.5}
	pairs  = []factors{plain, {0.5, 1}, {2.5, 1}, {1, 0.5}, {1, 2.5}, {0.5, 0.5}, {0.5, 2.5}, {2.5, 0.5}, {2.5, 2.5}}
)

// big is a number of elements that no single chunk of a transport holds.
func big(dt tensor.DType) int64 { return int64((520<<10)/dt.Size() + 3) }

func elements(s tensor.Shape) int {
	n, err := s.NumElements()
	if err != nil {
		panic(err)
	}
	return int(n)
}

func repeat(n int, s tensor.Shape) []tensor.Shape {
	shapes := make([]tensor.Shape, n)
	for i := range shapes {
		shapes[i] = s
	}
	return shapes
}

// singles makes a step of each trial.
func singles(trials []*trial) []step {
	steps := make([]step, len(trials))
	for i, t := range trials {
		steps[i].trials = []*trial{t}
	}
	return steps
}

// inTurn takes one step of each operation in turn: the first step of the first operation, the second of the second, ….
func inTurn(of func(op tensor.ReduceOp) func(dt tensor.DType, n int) []step,
	ops ...tensor.ReduceOp) func(dt tensor.DType, n int) []step {
	return func(dt tensor.DType, n int) []step {
		var steps []step
		for i, op := range ops {
			for k, s := range of(op)(dt, n) {
				if k%len(ops) == i {
					steps = append(steps, s)
				}
			}
		}
		return steps
	}
}

// refused turns a trial without a meaning into the refusal that answers it.
func (t *trial) refused(code engine.Code, format string, args ...any) *trial {
	t.code, t.refusal, t.want = code, fmt.Sprintf(format, args...), nil
	return t
}

// allreduce is a trial of an Allreduce or Adasum.
func allreduce(dt tensor.DType, op tensor.ReduceOp, n int, s tensor.Shape, f factors, kind data, inPlace bool) *trial {
	t := &trial{shapes: repeat(n, s), inPlace: inPlace, alike: true, equal: sameBits}
	t.op = engine.Op{Type: operation.Allreduce, DType: dt, ReduceOp: op, Prescale: f.pre, Postscale: f.post}
	for r := range n {
		t.ins = append(t.ins, draw(dt, op, kind, r, elements(s)))
	}
	var want []byte
	if op == tensor.Adasum {
		t.op.Type = operation.Adasum
		if !isFloat(dt) {
			return t.refused(engine.InvalidArgument, "Adasum of tensor")
		}
		want = naiveAdasum(dt, t.ins, f.pre, f.post)
		t.equal = within(float64(4*n), float64(4*n)*max(1, f.pre)*max(1, f.post))
	} else {
		scales := f != plain || op == tensor.Average
		if dt == tensor.Bool && scales || isFloat(dt) && ofBits(op) {
			return t.refused(engine.InvalidArgument, "Allreduce of tensor")
		}
		want = naiveReduce(dt, op, t.ins, f.pre, f.post)
		if kind == rough && isFloat(dt) && op != tensor.Min && op != tensor.Max {
			t.equal = within(float64(2*n), float64(4*n)*max(1, f.pre)*max(1, f.post))
		}
	}
	for range n {
		t.want = append(t.want, outcome{data: want})
	}
	return t
}

// allreduces are the trials of an Allreduce or Adasum.
func allreduces(op tensor.ReduceOp) func(dt tensor.DType, n int) []step {
	return func(dt tensor.DType, n int) []step {
		var trials []*trial
		for _, s := range []tensor.Shape{{}, {0}, {2, 0}, {1}, {63}, {64}, {65}, {3, 5}, {7, 1, 11}} {
			for _, f := range []factors{plain, scaled} {
				for _, inPlace := range []bool{false, true} {
					trials = append(trials, allreduce(dt, op, n, s, f, exact, inPlace))
				}
			}
		}
		for _, f := range pairs {
			trials = append(trials, allreduce(dt, op, n, tensor.Shape{66}, f, exact, false))
		}
		for _, kind := range []data{extreme, rough} {
			if kind == rough && op == tensor.Product {
				continue // the error has no bound as simple as that of a sum
			}
			trials = append(trials, allreduce(dt, op, n, tensor.Shape{67}, plain, kind, false),
				allreduce(dt, op, n, tensor.Shape{4000}, scaled, kind, true))
		}
		trials = append(trials, allreduce(dt, op, n, tensor.Shape{big(dt)}, plain, exact, true))
		return singles(trials)
	}
}

// allgather is a trial in which rank r gives rows[r] rows of the shape row.
func allgather(dt tensor.DType, rows []int64, row ...int64) *trial {
	t := &trial{alloc: true, alike: true, equal: sameBits}
	t.op = engine.Op{Type: operation.Allgather, DType: dt, Prescale: 1, Postscale: 1}
	want := outcome{shape: append(tensor.Shape{0}, row...), data: []byte{}}
	for r, n := range rows {
		s := append(tensor.Shape{n}, row...)
		in := draw(dt, tensor.Sum, rough, r, elements(s))
		t.shapes, t.ins = append(t.shapes, s), append(t.ins, in)
		want.shape[0] += n
		want.data = append(want.data, in...)
	}
	for range rows {
		t.want = append(t.want, want)
	}
	return t
}

func counts(n int, f func(r int) int64) []int64 {
	rows := make([]int64, n)
	for r := range rows {
		rows[r] = f(r)
	}
	return rows
}

func allgathers(dt tensor.DType, n int) []step {
	rows := func(f func(r int) int64) []int64 { return counts(n, f) }
	trials := []*trial{
		allgather(dt, rows(func(int) int64 { return 1 })),
		allgather(dt, rows(func(int) int64 { return 0 })),
		allgather(dt, rows(func(int) int64 { return 3 }), 0),
		allgather(dt, rows(func(r int) int64 { return int64(r) })),
		allgather(dt, rows(func(r int) int64 { return int64(n - 1 - r) }), 2, 3),
		allgather(dt, rows(func(r int) int64 { return int64(63 + r) })),
		allgather(dt, rows(func(r int) int64 { return int64(65 * (r % 2)) }), 1, 5, 1),
		allgather(dt, rows(func(r int) int64 { return int64(1000 * r * r) })),
		allgather(dt, rows(func(r int) int64 { return big(dt) / int64(1+2*r) })),
	}
	scalar := &trial{shapes: repeat(n, tensor.Shape{}), alloc: true}
	scalar.op = engine.Op{Type: operation.Allgather, DType: dt, Prescale: 1, Postscale: 1}
	for range n {
		scalar.ins = append(scalar.ins, make([]byte, dt.Size()))
	}
	return singles(append(trials, scalar.refused(engine.PreconditionError,
		"Process-set rank zero tried to ALLGATHER a rank-zero tensor.")))
}

func broadcast(dt tensor.DType, n, root int, s tensor.Shape, inPlace bool) *trial {
	t := &trial{shapes: repeat(n, s), inPlace: inPlace, alike: true, equal: sameBits}
	t.op = engine.Op{Type: operation.Broadcast, DType: dt, Root: root, Prescale: 1, Postscale: 1}
	for r := range n {
		t.ins = append(t.ins, draw(dt, tensor.Sum, rough, r+1, elements(s)))
	}
	for range n {
		t.want = append(t.want, outcome{data: t.ins[root]})
	}
	return t
}

func broadcasts(dt tensor.DType, n int) []step {
	var trials []*trial
	for root := range n {
		for _, s := range []tensor.Shape{{}, {0}, {3, 0, 2}, {1}, {63}, {64}, {65}, {7, 9}} {
			trials = append(trials, broadcast(dt, n, root, s, false), broadcast(dt, n, root, s, true))
		}
		trials = append(trials, broadcast(dt, n, root, tensor.Shape{big(dt)}, root%2 == 0))
	}
	return singles(trials)
}

// reduce is a trial of a Reduce: the root has the result of an allreduce, and the other ranks keep their outputs.
func reduce(dt tensor.DType, op tensor.ReduceOp, n, root int, s tensor.Shape, f factors, kind data,
	inPlace bool) *trial {
	t := allreduce(dt, op, n, s, f, kind, inPlace)
	t.op.Type, t.op.Root, t.alike = operation.Reduce, root, false
	if t.refusal != "" {
		return t.refused(t.code, "Reduce of tensor")
	}
	for r := range n {
		switch {
		case r == root:
		case inPlace:
			t.want[r].data = t.ins[r]
		default:
			t.want[r].data = bytes.Repeat([]byte{0xa5}, len(t.ins[r])) // as prepare has made it
		}
	}
	if equal := t.equal; !inPlace {
		t.equal = func(dt tensor.DType, got, want []byte) error {
			if bytes.Equal(got, want) { // 0xa5… may be a NaN
				return nil
			}
			return equal(dt, got, want)
		}
	}
	return t
}

func reduces(op tensor.ReduceOp) func(dt tensor.DType, n int) []step {
	return func(dt tensor.DType, n int) []step {
		var trials []*trial
		for root := range n {
			for i, s := range []tensor.Shape{{}, {0}, {1}, {65}, {7, 1, 11}} {
				trials = append(trials, reduce(dt, op, n, root, s, plain, exact, i%2 == 0), reduce(dt, op, n, root, s,
					scaled, exact, i%2 == 1))
			}
			trials = append(trials, reduce(dt, op, n, root, tensor.Shape{big(dt)}, plain, exact, root%2 == 0))
		}
		trials = append(trials, reduce(dt, op, n, n-1, tensor.Shape{67}, plain, extreme, false))
		if op != tensor.Product {
			trials = append(trials, reduce(dt, op, n, 0, tensor.Shape{4000}, scaled, rough, true))
		}
		return singles(trials)
	}
}

// alltoall is a trial in which rank r sends splits[r][m] rows to rank m, and keeps rest.
func alltoall(dt tensor.DType, splits [][]int32, even bool, rest int64, row ...int64) *trial {
	t := &trial{alloc: true, equal: sameBits}
	t.op = engine.Op{Type: operation.Alltoall, DType: dt, Prescale: 1, Postscale: 1}
	rowBytes := elements(row) * dt.Size()
	t.want = make([]outcome, len(splits))
	for r, to := range splits {
		rows := rest
		for _, k := range to {
			rows += int64(k)
		}
		s := append(tensor.Shape{rows}, row...)
		in := draw(dt, tensor.Sum, rough, r, elements(s))
		t.shapes, t.ins = append(t.shapes, s), append(t.ins, in)
		at := 0
		for m, k := range to {
			w := &t.want[m]
			w.data = append(w.data, in[at:at+int(k)*rowBytes]...)
			w.received = append(w.received, k)
			at += int(k) * rowBytes
		}
	}
	for m := range t.want {
		w := &t.want[m]
		w.shape = append(tensor.Shape{0}, row...)
		for _, k := range w.received {
			w.shape[0] += int64(k)
		}
	}
	if !even {
		t.splits = splits
	}
	return t
}

func alltoalls(dt tensor.DType, n int) []step {
	splits := func(f func(r, m int) int) [][]int32 {
		all := make([][]int32, n)
		for r := range all {
			for m := range n {
				all[r] = append(all[r], int32(f(r, m)))
			}
		}
		return all
	}
	var trials []*trial
	for _, k := range []int{0, 1, 21, 64} {
		trials = append(trials, alltoall(dt, splits(func(int, int) int { return k }), true, 0),
			alltoall(dt, splits(func(int, int) int { return k }), false, 0, 3))
	}
	trials = append(trials,
		alltoall(dt, splits(func(r, m int) int { return r + 2*m }), false, 0),
		alltoall(dt, splits(func(r, m int) int { return r + 2*m }), false, 5, 2, 2), // some rows are not sent
		alltoall(dt, splits(func(r, m int) int { return (r + m) % 2 * 65 }), false, 1),
		alltoall(dt, splits(func(r, m int) int { return r * m }), false, 0, 0),
		alltoall(dt, splits(func(r, m int) int { return max(0, r-m) * 63 }), false, 0),
		alltoall(dt, splits(func(r, m int) int { return int(big(dt)) / (1 + r + 2*m) }), false, 2),
	)
	scalar := &trial{shapes: repeat(n, tensor.Shape{}), alloc: true}
	scalar.op = engine.Op{Type: operation.Alltoall, DType: dt, Prescale: 1, Postscale: 1}
	for range n {
		scalar.ins = append(scalar.ins, make([]byte, dt.Size()))
	}
	return singles(append(trials, scalar.refused(engine.PreconditionError,
		"Process-set rank zero tried to ALLTOALL a rank-zero tensor.")))
}

// toOrFromRoot turns a trial of an Alltoall into one of a Gather or Scatter.
func toOrFromRoot(kind operation.Kind, root int, t *trial) *trial {
	t.op.Type, t.op.Root = kind, root
	return t
}

// rooted are trials of a Gather or Scatter. moves reports whether rank r sends to rank m.
func rooted(kind operation.Kind, moves func(root, r, m int) bool) func(dt tensor.DType, n int) []step {
	return func(dt tensor.DType, n int) []step {
		var trials []*trial
		for root := range n {
			splits := func(rows func(r, m int) int) [][]int32 {
				all := make([][]int32, n)
				for r := range all {
					all[r] = make([]int32, n)
					for m := range all[r] {
						if moves(root, r, m) {
							all[r][m] = int32(rows(r, m))
						}
					}
				}
				return all
			}
			for _, t := range []*trial{
				alltoall(dt, splits(func(int, int) int { return 0 }), false, 0),
				alltoall(dt, splits(func(int, int) int { return 21 }), false, 0, 3),
				alltoall(dt, splits(func(r, m int) int { return r + 2*m }), false, 5, 2, 2), // some rows are not sent
				alltoall(dt, splits(func(r, m int) int { return (r + m) % 2 * 65 }), false, 0),
				alltoall(dt, splits(func(r, m int) int { return int(big(dt)) / (1 + r + 2*m) }), false, 0),
			} {
				trials = append(trials, toOrFromRoot(kind, root, t))
			}
		}
		return singles(trials)
	}
}

func gathers() func(dt tensor.DType, n int) []step {
	return rooted(operation.Gather, func(root, _, m int) bool { return m == root })
}

func scatters() func(dt tensor.DType, n int) []step {
	return rooted(operation.Scatter, func(root, r, _ int) bool { return r == root })
}

// namedBarriers are trials of barriers with names.
func namedBarriers(dt tensor.DType, n int) []step {
	t := &trial{shapes: repeat(n, tensor.Shape{0}), ins: make([][]byte, n), want: make([]outcome, n), equal: sameBits}
	t.op = engine.Op{Type: operation.NamedBarrier, DType: dt, Prescale: 1, Postscale: 1}
	return singles([]*trial{t})
}

func reducescatter(dt tensor.DType, op tensor.ReduceOp, n int, s tensor.Shape, f factors, kind data,
	alloc bool) *trial {
	t := &trial{shapes: repeat(n, s), alloc: alloc, equal: sameBits}
	t.op = engine.Op{Type: operation.Reducescatter, DType: dt, ReduceOp: op, Prescale: f.pre, Postscale: f.post}
	for r := range n {
		t.ins = append(t.ins, draw(dt, op, kind, r, elements(s)))
	}
	if dt == tensor.Bool && (f != plain || op == tensor.Average) || isFloat(dt) && ofBits(op) {
		return t.refused(engine.InvalidArgument, "Reducescatter of tensor")
	}
	all := naiveReduce(dt, op, t.ins, f.pre, f.post)
	row := elements(s[1:]) * dt.Size()
	for r := range n {
		rows := int(s[0]) / n
		if r < int(s[0])%n {
			rows++
		}
		t.want = append(t.want, outcome{data: all[:rows*row], shape: append(tensor.Shape{int64(rows)}, s[1:]...)})
		all = all[rows*row:]
	}
	if kind == rough && isFloat(dt) && op != tensor.Min && op != tensor.Max {
		t.equal = within(float64(2*n), float64(4*n)*max(1, f.pre)*max(1, f.post))
	}
	return t
}

func reducescatters(op tensor.ReduceOp) func(dt tensor.DType, n int) []step {
	return func(dt tensor.DType, n int) []step {
		var trials []*trial
		for _, s := range []tensor.Shape{{0}, {4, 0}, {1}, {2, 3}, {int64(n)}, {int64(2*n + 1), 2}, {int64(3*n - 1)},
			{63}, {64, 1, 2}, {65}} {
			for _, f := range []factors{plain, scaled} {
				trials = append(trials, reducescatter(dt, op, n, s, f, exact, false), reducescatter(dt, op, n, s, f,
					exact, true))
			}
		}
		for _, f := range pairs {
			trials = append(trials, reducescatter(dt, op, n, tensor.Shape{11, 3}, f, exact, true))
		}
		for _, kind := range []data{extreme, rough} {
			if kind == rough && op == tensor.Product {
				continue
			}
			trials = append(trials, reducescatter(dt, op, n, tensor.Shape{67}, plain, kind, true),
				reducescatter(dt, op, n, tensor.Shape{1001, 4}, scaled, kind, false))
		}
		trials = append(trials, reducescatter(dt, op, n, tensor.Shape{big(dt)}, plain, exact, true))
		return singles(trials)
	}
}

// grouped makes groups of different members, of which one has another type.
func grouped(member func(dt tensor.DType, n, i int) *trial) func(dt tensor.DType, n int) []step {
	return func(dt tensor.DType, n int) []step {
		var steps []step
		for _, size := range []int{1, 2, 5} {
			for variant := range 3 {
				s := step{group: fmt.Sprintf("group %d of %d", variant, size)}
				for i := range size {
					of := dt
					if variant == 2 && i == 1 {
						of = tensor.Float32
					}
					s.trials = append(s.trials, member(of, n, i+10*variant))
				}
				steps = append(steps, s)
			}
		}
		return steps
	}
}

var (
	groupedAllreduces = grouped(func(dt tensor.DType, n, i int) *trial {
		op := []tensor.ReduceOp{tensor.Sum, tensor.Min, tensor.Sum, tensor.Product, tensor.Max}[i%5]
		f := []factors{plain, plain, scaled}[i/10]
		if dt == tensor.Bool {
			f = plain
		}
		s := []tensor.Shape{{5}, {64, 3}, {}, {0}, {4097}}[i%5]
		return allreduce(dt, op, n, s, f, exact, i%2 == 0)
	})
	groupedAllgathers = grouped(func(dt tensor.DType, n, i int) *trial {
		return allgather(dt, counts(n, func(r int) int64 { return int64((r + i) % 4 * (1 + i%5*i%5)) }),
			[]tensor.Shape{{}, {3}, {2, 2}}[i%3]...)
	})
	groupedReducescatters = grouped(func(dt tensor.DType, n, i int) *trial {
		op := []tensor.ReduceOp{tensor.Sum, tensor.Average}[i%2]
		f := []factors{plain, plain, scaled}[i/10]
		if dt == tensor.Bool {
			op, f = tensor.Sum, plain
		}
		return reducescatter(dt, op, n, tensor.Shape{int64(i%5*i + 1), 3}, f, exact, i%3 == 0)
	})
)
