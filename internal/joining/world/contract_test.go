package world

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
)

//go:generate go test . -run ^(TestContract|TestRefusals)$ -count=1 -timeout 300s -args -update

var update = flag.Bool("update", false, "rewrite the tables of docs/contract.md")

// columns are the transports of the table.
var columns = []struct {
	name       string
	transports [5][]string // by number of ranks, as launcher.config has them
}{
	{"solo", [5][]string{1: {"auto"}}},
	{"shm", [5][]string{2: {"shm"}, 3: {"shm"}, 4: {"shm"}}},
	{"tcp", [5][]string{2: {"tcp"}, 3: {"tcp"}, 4: {"tcp"}}},
	{"hosts", [5][]string{3: {"on aba"}, 4: {"on aabb", "on aaab"}}},
}

// rows are the operations of the table.
var rows = []struct {
	name  string
	steps func(dt tensor.DType, n int) []step
}{
	{"allreduce, Average", allreduces(tensor.Average)},
	{"allreduce, Sum", allreduces(tensor.Sum)},
	{"allreduce, Min", allreduces(tensor.Min)},
	{"allreduce, Max", allreduces(tensor.Max)},
	{"allreduce, Product", allreduces(tensor.Product)},
	{"allreduce, BitAnd, BitOr and BitXor in turn", inTurn(allreduces, tensor.BitAnd, tensor.BitOr, tensor.BitXor)},
	{"allreduce, Adasum", allreduces(tensor.Adasum)},
	{"grouped allreduce", groupedAllreduces},
	{"allgather", allgathers},
	{"grouped allgather", groupedAllgathers},
	{"broadcast", broadcasts},
	{"reduce, Average", reduces(tensor.Average)},
	{"reduce, Sum", reduces(tensor.Sum)},
	{"reduce, Min", reduces(tensor.Min)},
	{"reduce, Max", reduces(tensor.Max)},
	{"reduce, Product", reduces(tensor.Product)},
	{"reduce, BitAnd, BitOr and BitXor in turn", inTurn(reduces, tensor.BitAnd, tensor.BitOr, tensor.BitXor)},
	{"alltoall", alltoalls},
	{"gather", gathers()},
	{"scatter", scatters()},
	{"barrier with a name", namedBarriers},
	{"reducescatter, Sum", reducescatters(tensor.Sum)},
	{"reducescatter, Average", reducescatters(tensor.Average)},
	{"reducescatter, Min, Max and Product in turn", inTurn(reducescatters, tensor.Min, tensor.Max, tensor.Product)},
	{"reducescatter, BitAnd, BitOr and BitXor in turn", inTurn(reducescatters, tensor.BitAnd, tensor.BitOr,
		tensor.BitXor)},
	{"grouped reducescatter", groupedReducescatters},
}

const (
	joinRow    = "join"
	barrierRow = "barrier"
)

// tally counts cases by row, type and column.
type tally map[string]*cell

// cell is the table's entry for an operation on a type over a transport.
type cell struct{ done, refused int }

func (c *cell) count(t *trial) {
	if t.refusal != "" {
		c.refused++
	} else {
		c.done++
	}
}

func (c tally) at(row, dt, column string) *cell {
	key := row + "|" + dt + "|" + column
	if c[key] == nil {
		c[key] = new(cell)
	}
	return c[key]
}

// TestContract runs every operation on every element type over every transport,
// and compares all outputs on all ranks with a naive reference. The numbers of
// cases stand in docs/contract.md.
func TestContract(t *testing.T) {
	asProcesses(t)
	sizes, types := []int{1, 2, 3, 4}, allTypes()
	switch {
	case raceDetector:
		sizes, types = []int{2, 3}, []tensor.DType{tensor.Int32, tensor.BFloat16}
	case testing.Short():
		sizes, types = []int{1, 2, 3}, []tensor.DType{tensor.Uint8, tensor.Int64, tensor.Float16, tensor.Float32,
			tensor.Bool}
	}
	passed := make(tally)
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			over := make([][]*worlds, len(columns))
			for i, c := range columns {
				for _, transport := range c.transports[n] {
					over[i] = append(over[i], joinAll(t, n, transport))
				}
			}
			all := func(do func(w *worlds, column string)) {
				for i, c := range columns {
					for _, w := range over[i] {
						do(w, c.name)
					}
				}
			}
			for _, dt := range types {
				for _, row := range rows {
					steps := row.steps(dt, n)
					all(func(w *worlds, column string) {
						w.tryAll(row.name, steps, passed.at(row.name, dt.String(), column))
					})
				}
				all(func(w *worlds, column string) { w.tryJoin(dt, passed.at(joinRow, dt.String(), column)) })
			}
			all(func(w *worlds, column string) { w.tryBarrier(passed.at(barrierRow, "", column)) })
		})
	}
	if raceDetector || testing.Short() || t.Failed() {
		return
	}
	section(t, "cases", casesTable(passed))
}

func allTypes() []tensor.DType {
	types := make([]tensor.DType, tensor.NumReducible)
	for i := range types {
		types[i] = tensor.DType(i)
	}
	return types
}

// asProcesses gives each rank of a world a thread of its own, like a process: a driver that waits yields its core, but
// not its thread.
func asProcesses(t *testing.T) {
	before := runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// worlds are the ranks of a world in this process: all of them, or one over MPI.
type worlds struct {
	t         *testing.T
	transport string
	ws        []*World // by rank; nil for those elsewhere
	here      []int    // the ranks that are not elsewhere
	left      sync.Once
	// If there are ranks elsewhere: exchanges the bytes of all ranks, by rank.
	exchange func(mine []byte) [][]byte
}

// each runs f for the ranks here, at the same time.
func (all *worlds) each(f func(rank int)) { each(len(all.here), func(i int) { f(all.here[i]) }) }

// joinAll joins n ranks, which leave at the end of the test.
func joinAll(t *testing.T, n int, transport string) *worlds {
	t.Helper()
	return joinAllWith(t, n, transport, func(*config.Config) {})
}

// joinAllWith is joinAll with changes of the configuration.
func joinAllWith(t *testing.T, n int, transport string, change func(*config.Config)) *worlds {
	t.Helper()
	all := &worlds{t: t, transport: transport, ws: make([]*World, n)}
	for r := range n {
		all.here = append(all.here, r)
	}
	l := newLauncher(t, n)
	each(n, func(r int) {
		c := l.config(r, n, transport)
		c.Told.LocalSize = 64 // more ranks than cores, so a waiting rank does not spin
		c.CacheCapacity = 64  // fewer than the trials of a row: cards are evicted, too
		change(c)
		w, err := join(context.Background(), c, 1, quiet())
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		all.ws[r] = w
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(all.leave)
	return all
}

// leave lets all ranks leave, once.
func (all *worlds) leave() {
	all.left.Do(func() { all.each(func(r int) { all.ws[r].Leave(limit) }) })
}

// tryAll runs the steps one by one. Then it runs all of them at once, with the cards that the first round has left,
// with fusion, and with waits in another order.
func (all *worlds) tryAll(row string, steps []step, c *cell) {
	for _, together := range []bool{false, true} {
		attempts := make([][]*attempt, len(all.ws))
		all.each(func(r int) { attempts[r] = all.submit(r, row, steps, together) })
		results := sha256.New()
		for k, a := range attempts[all.here[0]] {
			if bad := all.judge(attempts, k); bad != "" {
				all.t.Errorf("%s: %s, together %v: %v: %s", all.transport, row, together, a.trial, bad)
			} else {
				c.count(a.trial)
			}
			if a.trial.alike && a.trial.refusal == "" {
				results.Write(a.got.data)
			}
		}
		if all.exchange != nil {
			all.compareElsewhere(results.Sum(nil), fmt.Sprintf("%s, together %v", row, together))
		}
	}
}

// judge says what is wrong with attempt k of the ranks here; "" if all is well.
func (all *worlds) judge(attempts [][]*attempt, k int) string {
	first := attempts[all.here[0]][k]
	for _, r := range all.here {
		a := attempts[r][k]
		if err := a.judge(r); err != nil {
			return fmt.Sprintf("rank %d: %v", r, err)
		}
		if a.trial.refusal == "" && a.trial.alike && string(a.got.data) != string(first.got.data) {
			return fmt.Sprintf("ranks %d and %d have different bits", all.here[0], r)
		}
	}
	return ""
}

// compareElsewhere compares the digest of the results here with those of the ranks elsewhere.
func (all *worlds) compareElsewhere(mine []byte, what string) {
	for r, theirs := range all.exchange(mine) {
		if string(theirs) != string(mine) {
			all.t.Errorf("%s: %s: rank %d has other bits than rank %d", all.transport, what, r, all.here[0])
		}
	}
}

// submit runs rank's part of the steps: an attempt at each of their trials, in their order.
func (all *worlds) submit(rank int, row string, steps []step, together bool) (attempts []*attempt) {
	for i, s := range steps {
		var these []*attempt
		var ops []engine.Op
		for k, t := range s.trials {
			a := t.prepare(rank, fmt.Sprintf("%s %d.%d", row, i, k))
			a.op.WillWait = !together
			these, ops = append(these, a), append(ops, a.op)
		}
		enqueue(all.ws[rank].Engine, s.group, these, ops)
		if !together {
			for _, a := range these {
				a.wait()
			}
		}
		attempts = append(attempts, these...)
	}
	if together {
		for _, a := range slices.Backward(attempts) {
			a.wait()
		}
	}
	return attempts
}

// enqueue submits a group, or the single attempt if it has no name.
func enqueue(e *engine.Engine, group string, attempts []*attempt, ops []engine.Op) {
	if group == "" {
		attempts[0].entry, attempts[0].err = e.Enqueue(&ops[0])
		return
	}
	entries, err := e.EnqueueGroup(group, ops)
	for k, a := range attempts {
		if err != nil {
			a.err = err
		} else {
			a.entry = entries[k]
		}
	}
}

// tryJoin lets each rank in turn join last, after reductions in which the others take part with zeros.
func (all *worlds) tryJoin(dt tensor.DType, c *cell) {
	for late := range all.ws {
		steps := singles(reductionsOfOne(dt, late, len(all.ws)))
		var attempts []*attempt // none if the last rank is elsewhere
		last := make([]int, len(all.ws))
		all.each(func(r int) {
			if r == late {
				attempts = all.submit(r, "join", steps, late%2 == 0)
			}
			last[r] = all.join(r)
		})
		for _, a := range attempts {
			if err := a.judge(late); err != nil {
				all.t.Errorf("%s: the others than rank %d have joined: %v: %v", all.transport, late, a.trial, err)
			} else {
				c.count(a.trial)
			}
		}
		for _, r := range all.here {
			if last[r] != late {
				all.t.Errorf("rank %d: rank %d has joined last, not %d", r, last[r], late)
			}
		}
		c.done++
	}
}

// reductionsOfOne are allreduces to which all ranks but one contribute zeros.
func reductionsOfOne(dt tensor.DType, one, n int) (trials []*trial) {
	for _, op := range []tensor.ReduceOp{tensor.Sum, tensor.Average, tensor.Min, tensor.Max, tensor.Product,
		tensor.Adasum} {
		for _, s := range []tensor.Shape{{}, {0}, {65}, {3, 1000}} {
			t := allreduce(dt, op, n, s, plain, exact, s == nil)
			t.silenceAllBut(one)
			trials = append(trials, t)
		}
	}
	return trials
}

// silenceAllBut lets the other ranks contribute zeros to an allreduce.
func (t *trial) silenceAllBut(one int) {
	for r, in := range t.ins {
		if r != one {
			t.ins[r] = make([]byte, len(in))
		}
	}
	if t.refusal != "" {
		return
	}
	naive := naivelyReduced
	if t.op.ReduceOp == tensor.Adasum {
		naive = func(dt tensor.DType, _ tensor.ReduceOp, ins [][]byte, pre, post float64) []byte {
			return naiveAdasum(dt, ins, pre, post)
		}
	}
	want := naive(t.op.DType, t.op.ReduceOp, t.ins, 1, 1)
	for r := range t.want {
		t.want[r].data = want
	}
}

// join lets a rank join, and returns the rank that joined last.
func (all *worlds) join(rank int) int {
	en, err := all.ws[rank].Engine.Enqueue(&engine.Op{Type: operation.Join, Name: engine.JoinName,
		DType: tensor.Uint8, Prescale: 1, Postscale: 1})
	if err != nil {
		all.t.Errorf("rank %d joins: %v", rank, err)
		return -1
	}
	defer en.Release()
	if !en.Wait(limit) || en.Err() != nil {
		all.t.Errorf("rank %d has not joined: %v", rank, en.Err())
	}
	return en.LastJoined()
}

// tryBarrier makes sure that no rank leaves a barrier before all have entered it.
func (all *worlds) tryBarrier(c *cell) {
	const rounds = 50
	n := int64(len(all.ws))
	var entered atomic.Int64
	var early sync.Once
	each(int(n), func(r int) {
		for round := range int64(rounds) {
			entered.Add(1)
			en, err := all.ws[r].Engine.Enqueue(&engine.Op{Type: operation.Barrier, Name: "barrier.noname",
				DType: tensor.Uint8, Prescale: 1, Postscale: 1, WillWait: true})
			if err != nil {
				all.t.Errorf("rank %d: %v", r, err)
				return
			}
			if !en.Wait(limit) || en.Err() != nil {
				all.t.Errorf("rank %d: %v", r, en.Err())
			}
			en.Release()
			if have := entered.Load(); have < (round+1)*n {
				early.Do(func() { all.t.Errorf("rank %d left barrier %d when %d had entered", r, round, have-round*n) })
			}
		}
	})
	c.done += rounds
}
