package world

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/operation"
	"github.com/gorovod/gorovod/internal/tensor"
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
	{"alltoall", alltoalls},
	{"reducescatter, Sum", reducescatters(tensor.Sum)},
	{"reducescatter, Average", reducescatters(tensor.Average)},
	{"grouped reducescatter", groupedReducescatters},
}

const (
	joinRow    = "join"
	barrierRow = "barrier"
)

// tally counts cases by row, type and column.
type tally map[string]*cell

// cell is what the table says of an operation on a type over a transport.
type cell struct{ done, refused int }

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
					all(func(w *worlds,
						column string) {
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
	types := make([]tensor.DType, tensor.NumDTypes)
	for i := range types {
		types[i] = tensor.DType(i)
	}
	return types
}

// asProcesses lets each rank of a world have a thread of its own, as it has as a
// process: a driver that waits gives its core away, but not its thread.
func asProcesses(t *testing.T) {
	before := runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0)))
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// worlds are the ranks of a world that are in this process: all of them, but over MPI one.
type worlds struct {
	t         *testing.T
	transport string
	ws        []*World // by rank; nil for those elsewhere
	here      []int    // the ranks that are not elsewhere
	left      sync.Once
	// Where there are others elsewhere: tells all ranks what one says, by rank.
	exchange func(mine []byte) [][]byte
}

// each runs f for the ranks here, at the same time.
func (all *worlds) each(f func(rank int)) { each(len(all.here), func(i int) { f(all.here[i]) }) }

// joinAll joins n ranks, which leave at the end of the test.
func joinAll(t *testing.T, n int, transport string) *worlds {
	t.Helper()
	all := &worlds{t: t, transport: transport, ws: make([]*World, n)}
	for r := range n {
		all.here = append(all.here, r)
	}
	l := newLauncher(t, n)
	each(n, func(r int) {
		c := l.config(r, n, transport)
		c.Told.LocalSize = 64 // more than cores: who waits does not spin
		c.CacheCapacity = 64  // fewer than the trials of a row: cards are evicted, too
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

// tryAll runs the steps one by one, then all of them at once, with cards where
// the first round has left them, fusion, and the waits in another order.
func (all *worlds) tryAll(row string, steps []step, c *cell) {
	for _, together := range []bool{false, true} {
		attempts, outcomes := make([][][]*attempt, len(all.ws)), make([][][]*engine.Error, len(all.ws))
		all.each(func(r int) {
			attempts[r], outcomes[r] = all.submit(r, row, steps, together)
		})
		results := sha256.New()
		for i, s := range steps {
			for k, trial := range s.trials {
				bad := ""
				for _, r := range all.here {
					a := attempts[r][i][k]
					if err := trial.judge(r, a, outcomes[r][i][k]); err != nil {
						bad = fmt.Sprintf("rank %d: %v", r, err)
						break
					}
					if first := attempts[all.here[0]][i][k]; trial.refusal == "" && trial.alike &&
						string(a.got.data) != string(first.got.data) {
						bad = fmt.Sprintf("ranks %d and %d have different bits", all.here[0], r)
						break
					}
				}
				if trial.alike && trial.refusal == "" {
					results.Write(attempts[all.here[0]][i][k].got.data)
				}
				switch {
				case bad != "":
					all.t.Errorf("%s: %s, together %v: %v: %s", all.transport, row, together, trial, bad)
				case trial.refusal != "":
					c.refused++
				default:
					c.done++
				}
			}
		}
		if all.exchange != nil {
			mine := results.Sum(nil)
			for r, theirs := range all.exchange(mine) {
				if string(theirs) != string(mine) {
					all.t.Errorf("%s: %s, together %v: rank %d has other bits than rank %d", all.transport, row,
						together, r, all.here[0])
				}
			}
		}
	}
}

// submit runs rank's part of the steps.
func (all *worlds) submit(rank int, row string, steps []step, together bool) (attempts [][]*attempt,
	outcomes [][]*engine.Error) {
	e := all.ws[rank].Engine
	pending := make([][]*engine.Entry, len(steps))
	wait := func(i int) {
		for k, en := range pending[i] {
			if en == nil {
				continue
			}
			if !en.Wait(limit) {
				outcomes[i][k] = &engine.Error{Code: engine.InProgress, Reason: "is not done"}
				continue
			}
			outcomes[i][k], attempts[i][k].got.received = en.Err(), en.ReceivedSplits()
			en.Release()
		}
	}
	for i, s := range steps {
		attempts = append(attempts, make([]*attempt, len(s.trials)))
		outcomes = append(outcomes, make([]*engine.Error, len(s.trials)))
		pending[i] = make([]*engine.Entry, len(s.trials))
		ops := make([]engine.Op, len(s.trials))
		for k, t := range s.trials {
			attempts[i][k] = t.prepare(rank, fmt.Sprintf("%s %d.%d", row, i, k))
			attempts[i][k].op.WillWait = !together
			ops[k] = attempts[i][k].op
		}
		if s.group == "" {
			pending[i][0], outcomes[i][0] = e.Enqueue(&ops[0])
		} else if entries, err := e.EnqueueGroup(s.group, ops); err != nil {
			for k := range s.trials {
				outcomes[i][k] = err
			}
		} else {
			copy(pending[i], entries)
		}
		if !together {
			wait(i)
		}
	}
	if together {
		for i := len(steps) - 1; i >= 0; i-- {
			wait(i)
		}
	}
	return attempts, outcomes
}

// tryJoin lets each rank in turn be the one that joins last, after reductions in which
// the others take part with zeros.
func (all *worlds) tryJoin(dt tensor.DType, c *cell) {
	n := len(all.ws)
	for late := range n {
		var trials []*trial
		for _, op := range []tensor.ReduceOp{tensor.Sum, tensor.Average, tensor.Min, tensor.Max, tensor.Product,
			tensor.Adasum} {
			for _, s := range []tensor.Shape{{}, {0}, {65}, {3, 1000}} {
				t := allreduce(dt, op, n, s, plain, exact, s == nil)
				for r := range n {
					if r != late {
						clear(t.ins[r])
					}
				}
				if t.refusal == "" { // anew, with the zeros
					var want []byte
					if op == tensor.Adasum {
						want = naiveAdasum(dt, t.ins, 1, 1)
					} else {
						want = naiveReduce(dt, op, t.ins, 1, 1)
					}
					for r := range t.want {
						t.want[r].data = want
					}
				}
				trials = append(trials, t)
			}
		}
		steps := singles(trials)
		attempts, outcomes := [][]*attempt(nil), [][]*engine.Error(nil)
		last := make([]int, n)
		all.each(func(r int) {
			if r == late {
				attempts, outcomes = all.submit(r, "join", steps, late%2 == 0)
			}
			en, err := all.ws[r].Engine.Enqueue(&engine.Op{Type: operation.Join, Name: engine.JoinName,
				DType: tensor.Uint8, Prescale: 1, Postscale: 1})
			if err != nil {
				all.t.Errorf("rank %d joins: %v", r, err)
				return
			}
			if !en.Wait(limit) || en.Err() != nil {
				all.t.Errorf("rank %d has not joined: %v", r, en.Err())
			}
			last[r] = en.LastJoined()
			en.Release()
		})
		for i, t := range trials {
			if attempts == nil {
				break // the last one is elsewhere
			}
			switch err := t.judge(late, attempts[i][0], outcomes[i][0]); {
			case err != nil:
				all.t.Errorf("%s: the others than rank %d have joined: %v: %v", all.transport, late, t, err)
			case t.refusal != "":
				c.refused++
			default:
				c.done++
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

// tryBarrier makes sure that nobody leaves a barrier that somebody has not entered.
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
