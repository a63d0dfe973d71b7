package world

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// refusalRanks is the size of the worlds in which the checks are tried.
const refusalRanks = 3

// refusalThreshold is their fusion threshold.
const refusalThreshold = 1 << 10

// plainOp is an operation on a vector of n float32, with nothing wrong.
func plainOp(kind operation.Kind, n int64) *engine.Op {
	op := &engine.Op{Type: kind, DType: tensor.Float32, ReduceOp: tensor.Sum, Prescale: 1, Postscale: 1}
	setShape(op, n)
	return op
}

// setShape gives op fresh memory of a shape.
func setShape(op *engine.Op, s ...int64) {
	op.Shape = s
	op.In = make([]byte, elements(s)*op.DType.Size())
	switch op.Type {
	case operation.Allreduce, operation.Adasum, operation.Broadcast, operation.Reduce:
		op.Out = op.In
	case operation.Barrier, operation.Join:
	default:
		op.Alloc = func(_ tensor.Shape, n int) ([]byte, error) { return make([]byte, n), nil }
	}
}

// with is plainOp on 6 elements, with a change.
func with(kind operation.Kind, change func(op *engine.Op)) *engine.Op {
	op := plainOp(kind, 6)
	if change != nil {
		change(op)
	}
	setShape(op, op.Shape...)
	return op
}

// disagreement is a check of the coordinator's: the ranks disagree, or agree on something impossible, and all of them
// get the same reason.
type disagreement struct {
	check     string // its number in Horovod's order, or none
	condition string
	horovods  string // the text, in the form of the reference
	// begins is the beginning of the reason. Two %v are the value of the lowest rank and of the first rank that
	// differs.
	begins      string
	odd, common any
	// op is the operation that the odd rank submits, and the one of the others.
	op func(odd bool) *engine.Op
	// joined: the odd rank has joined instead.
	joined bool
}

func changed(kind operation.Kind, change func(op *engine.Op)) func(odd bool) *engine.Op {
	return func(odd bool) *engine.Op {
		if odd {
			return with(kind, change)
		}
		return with(kind, nil)
	}
}

func always(kind operation.Kind, change func(op *engine.Op)) func(odd bool) *engine.Op {
	return func(bool) *engine.Op { return with(kind, change) }
}

func scalar(op *engine.Op) { op.Shape = nil }

func disagreements() []disagreement {
	mismatchedShapes := "Mismatched OP tensor shapes: One rank sent a tensor of shape [..], but another rank sent a " +
		"tensor of shape [..]."
	mismatchedFactors := "Mismatched prescale and/or postscale factors: One rank sent factors (a, b), but another " +
		"rank sent factors (c, d)."
	all := []disagreement{
		{check: "1", condition: "the types differ", horovods: "Mismatched data types: One rank had type A, but " +
			"another rank had type B.", begins: "Mismatched data types: One rank had type %v, but another rank " +
			"had type %v.", odd: "int32", common: "float32",
			op: changed(operation.Allreduce, func(op *engine.Op) { op.DType = tensor.Int32 })},
		{check: "2", condition: "the operations differ", horovods: "Mismatched operations: One rank did an A, but " +
			"another rank did an B.", begins: "Mismatched operations: One rank did an %v, but another rank did an %v.",
			odd: "ALLGATHER", common: "ALLREDUCE",
			op: func(odd bool) *engine.Op {
				if odd {
					return plainOp(operation.Allgather, 6)
				}
				return plainOp(operation.Allreduce, 6)
			}},
	}
	for _, kind := range []operation.Kind{operation.Allreduce, operation.Adasum, operation.Broadcast,
		operation.Reducescatter, operation.Reduce} {
		all = append(all, disagreement{check: "3", condition: "the shapes differ", horovods: mismatchedShapes,
			begins: "Mismatched " + kind.String() + " tensor shapes: One rank sent a tensor of shape %v, but another " +
				"rank sent a tensor of shape %v.", odd: "[3, 2]", common: "[6]",
			op: changed(kind, func(op *engine.Op) { op.Shape = tensor.Shape{3, 2} })})
	}
	for _, kind := range []operation.Kind{operation.Allreduce, operation.Adasum, operation.Reducescatter,
		operation.Reduce} {
		all = append(all, disagreement{check: "4", condition: "the factors differ, " + kind.String(),
			horovods: mismatchedFactors, begins: "Mismatched prescale and/or postscale factors: One rank sent " +
				"factors %v, but another rank sent factors %v.", odd: "(0.5, 1)", common: "(1, 1)",
			op: changed(kind, func(op *engine.Op) { op.Prescale = 0.5 })})
	}
	all = append(all, disagreement{check: "4", condition: "the factors differ, Average against Sum of a reducescatter",
		horovods: mismatchedFactors, begins: "Mismatched prescale and/or postscale factors: One rank sent factors " +
			"%v, but another rank sent factors %v.", odd: "(1, 0.3333333333333333)", common: "(1, 1)",
		op: changed(operation.Reducescatter, func(op *engine.Op) { op.ReduceOp = tensor.Average })},
		disagreement{check: "5", condition: "the reduce operations differ",
			horovods: "Mismatched reduction operation: One rank sent reduction op i, but another rank sent " +
				"reduction op j.", begins: "Mismatched reduction operation: One rank sent reduction op %v, " +
				"but another " +
				"rank sent reduction op %v.", odd: 4, common: 1,
			op: changed(operation.Allreduce, func(op *engine.Op) { op.ReduceOp = tensor.Max })},
		disagreement{check: "5", condition: "the reduce operations differ, of a reducescatter", horovods: "–",
			begins: "Mismatched reduction operation: One rank sent reduction op %v, but another rank sent reduction " +
				"op %v.", odd: 7, common: 6,
			op: func(odd bool) *engine.Op {
				return with(operation.Reducescatter, func(op *engine.Op) {
					op.DType, op.ReduceOp = tensor.Int32, tensor.BitAnd
					if odd {
						op.ReduceOp = tensor.BitOr
					}
				})
			}},
		disagreement{check: "6a", condition: "a rank has joined", horovods: "Allgather is not supported with Join at " +
			"this time. Specify sparse_to_dense=True if using DistributedOptimizer",
			begins: "Allgather is not supported with Join at this time. Specify sparse_to_dense=True if using " +
				"DistributedOptimizer", joined: true, op: changed(operation.Allgather, nil)},
		disagreement{check: "6a", condition: "a rank has joined", horovods: "Alltoall is not supported with Join " +
			"at this time.", begins: "Alltoall is not supported with Join at this time.", joined: true,
			op: changed(operation.Alltoall, nil)},
	)
	for _, kind := range []operation.Kind{operation.Allgather, operation.Alltoall} {
		all = append(all,
			disagreement{check: "6b", condition: "the tensor is a scalar",
				horovods: "Process-set rank zero tried to OP a rank-zero tensor.",
				begins:   "Process-set rank zero tried to " + kind.String() + " a rank-zero tensor.",
				op:       always(kind, scalar)},
			disagreement{check: "6c", condition: "the numbers of dimensions differ",
				horovods: "Mismatched OP tensor shapes: One rank sent a tensor of rank N, but another rank sent a " +
					"tensor of rank M.", begins: "Mismatched " + kind.String() +
					" tensor shapes: One rank sent a tensor " +
					"of rank %v, but another rank sent a tensor of rank %v.", odd: 2, common: 1,
				op: changed(kind, func(op *engine.Op) { op.Shape = tensor.Shape{3, 2} })},
			disagreement{check: "6d", condition: "a dimension after the first differs",
				horovods: "Mismatched OP tensor shapes: One rank sent a tensor with dimension D equal to A, but " +
					"another rank sent a tensor with dimension D equal to B.",
				begins: "Mismatched " + kind.String() + " tensor shapes: One rank sent a tensor with dimension 2 " +
					"equal to %v, but another rank sent a tensor with dimension 2 equal to %v.", odd: 5, common: 4,
				op: func(odd bool) *engine.Op {
					return with(kind, func(op *engine.Op) {
						op.Shape = tensor.Shape{3, 2, 4}
						if odd {
							op.Shape[2] = 5
						}
					})
				}})
	}
	return append(all,
		disagreement{check: "7b", condition: "the tensor is a scalar",
			horovods: "Process-set rank zero tried to REDUCESCATTER a rank-zero tensor.",
			begins:   "Process-set rank zero tried to REDUCESCATTER a rank-zero tensor.",
			op:       always(operation.Reducescatter, scalar)},
		disagreement{check: "7a", condition: "a rank has joined", horovods: "Reducescatter is not supported with " +
			"Join at this time.", begins: "Reducescatter is not supported with Join at this time.", joined: true,
			op: changed(operation.Reducescatter, nil)},
		disagreement{check: "7c", condition: "a prescale, and more bytes than the fusion threshold",
			horovods: "names the prescale and the bytes, asks to increase HOROVOD_FUSION_THRESHOLD",
			begins: "Reducescatter with prescale factor 0.5 needs the fusion buffer, but the tensor has 1028 bytes. " +
				"Increase HOROVOD_FUSION_THRESHOLD",
			op: always(operation.Reducescatter,
				func(op *engine.Op) { op.Shape, op.Prescale = tensor.Shape{refusalThreshold/4 + 1}, 0.5 })},
		disagreement{check: "8a", condition: "a rank has joined", horovods: "Broadcast is not supported with Join " +
			"at this time.", begins: "Broadcast is not supported with Join at this time.", joined: true,
			op: changed(operation.Broadcast, nil)},
		disagreement{check: "8b", condition: "the roots differ", horovods: "Mismatched BROADCAST root ranks: One " +
			"rank specified root rank A, but another rank specified root rank B.",
			begins: "Mismatched BROADCAST root ranks: One rank specified root rank %v, but another rank specified " +
				"root rank %v.", odd: 2, common: 1,
			op: func(odd bool) *engine.Op {
				return with(operation.Broadcast, func(op *engine.Op) {
					op.Root = 1
					if odd {
						op.Root = 2
					}
				})
			}},
		disagreement{check: "8b", condition: "the roots differ", horovods: "–",
			begins: "Mismatched REDUCE root ranks: One rank specified root rank %v, but another rank specified " +
				"root rank %v.", odd: 2, common: 1,
			op: func(odd bool) *engine.Op {
				return with(operation.Reduce, func(op *engine.Op) {
					op.Root = 1
					if odd {
						op.Root = 2
					}
				})
			}},
	)
}

// refusal is a check at the submission: the rank that makes the mistake gets the error at once.
type refusal struct {
	check     string // its section and number in the reference
	condition string
	horovods  string
	code      engine.Code
	begins    string // %d is the rank
	op        func(rank int) *engine.Op
}

// collectivesOf are the operations on tensors, by the name that reasons begin with.
var collectivesOf = []struct {
	name string
	kind operation.Kind
}{
	{"Allreduce", operation.Allreduce}, {"Adasum", operation.Adasum}, {"Allgather", operation.Allgather},
	{"Broadcast", operation.Broadcast}, {"Alltoall", operation.Alltoall}, {"Reducescatter", operation.Reducescatter},
	{"Reduce", operation.Reduce},
}

const (
	unknownSet = 77
	pairsFirst = 1 // the id of the set {1, 2}, which lacks rank 0; then {0, 2}, {0, 1}
)

func refusals() []refusal {
	var all []refusal
	add := func(check, condition, horovods string, code engine.Code, begins string, op func(rank int) *engine.Op) {
		all = append(all, refusal{check, condition, horovods, code, begins, op})
	}
	// same is an operation that does not depend on the rank.
	same := func(kind operation.Kind, change func(op *engine.Op)) func(int) *engine.Op {
		return func(int) *engine.Op { return with(kind, change) }
	}
	barriers := append(slices.Clone(collectivesOf), []struct {
		name string
		kind operation.Kind
	}{{"Barrier", operation.Barrier}, {"Join", operation.Join}}...)
	for _, c := range barriers {
		horovods := "INVALID_ARGUMENT, Op: set does not exist or is not registered"
		if c.kind == operation.Barrier || c.kind == operation.Join {
			horovods = "C++ `out_of_range` thrown"
		}
		add("§1.4, 2", "unknown process set", horovods, engine.InvalidArgument,
			c.name+": Process set provided does not exist, or has not been registered",
			same(c.kind, func(op *engine.Op) { op.Set = unknownSet }))
	}
	for _, root := range []int{-1, refusalRanks} {
		add("§1.4, 4", "root outside of the world", "INVALID_ARGUMENT, broadcast received invalid root rank N for "+
			"provided process set", engine.InvalidArgument,
			fmt.Sprintf(`Broadcast of tensor "x": broadcast received invalid root rank %d for provided process set`,
				root),
			same(operation.Broadcast, func(op *engine.Op) { op.Root = root }))
	}
	add("§1.4, 4", "root outside of the world", "–", engine.InvalidArgument,
		`Reduce of tensor "x": reduce received invalid root rank 3 for provided process set`,
		same(operation.Reduce, func(op *engine.Op) { op.Root = refusalRanks }))
	add("§1.4, 4", "no output on the root", "–", engine.InvalidArgument, `Reduce of tensor "x": 0 bytes of output`,
		func(rank int) *engine.Op {
			op := with(operation.Reduce, func(op *engine.Op) { op.Root = rank })
			op.Out = nil
			return op
		})
	add("§1.4, 4", "reduce, adasum", "–", engine.Aborted, `Reduce of tensor "x": adasum is not possible: `,
		same(operation.Reduce, func(op *engine.Op) { op.ReduceOp = tensor.Adasum }))
	add("§1.4, 4", "root outside of the set, seen before the membership",
		"INVALID_ARGUMENT, broadcast received invalid root rank N for provided process set", engine.InvalidArgument,
		`Broadcast of tensor "x": broadcast received invalid root rank %d for provided process set`,
		func(rank int) *engine.Op {
			return with(operation.Broadcast, func(op *engine.Op) { op.Set, op.Root = pairsFirst+rank, rank })
		})
	add("§1.4, 4", "number of splits", "INVALID_ARGUMENT", engine.InvalidArgument,
		`Alltoall of tensor "x": 2 splits for 3 processes.`, same(operation.Alltoall,
			func(op *engine.Op) { op.Splits = []int32{3, 3} }))
	add("§1.4, 4", "sum of the splits", "INVALID_ARGUMENT", engine.InvalidArgument,
		`Alltoall of tensor "x": the sum of the splits 7 is greater than the first dimension 6.`,
		same(operation.Alltoall, func(op *engine.Op) { op.Splits = []int32{3, 3, 1} }))
	add("§1.4, 4", "a negative split", "–", engine.InvalidArgument, `Alltoall of tensor "x": split 1 is negative (-1).`,
		same(operation.Alltoall, func(op *engine.Op) { op.Splits = []int32{3, -1, 3} }))
	add("§1.4, 4", "no splits, rows not divisible", "INVALID_ARGUMENT", engine.InvalidArgument,
		`Alltoall of tensor "x": splits are not given, and the first dimension 7 is not divisible by the number of processes 3.`,
		same(operation.Alltoall, func(op *engine.Op) { op.Shape = tensor.Shape{7} }))
	add("§1.4, 4", "reducescatter, adasum", "ABORTED, currently only supports AVERAGE and SUM", engine.Aborted,
		`Reducescatter of tensor "x": adasum is not possible: it currently only supports AVERAGE, SUM, MIN, MAX, `+
			`PRODUCT, BAND, BOR and BXOR.`,
		same(operation.Reducescatter, func(op *engine.Op) { op.ReduceOp = tensor.Adasum }))
	add("§1.4, 4", "average of bool", "UNKNOWN_ERROR, not supported by ScaleBufferCPUImpl", engine.InvalidArgument,
		`Allreduce of tensor "x": there is no average of bool; it takes uint8, `, same(operation.Allreduce,
			func(op *engine.Op) { op.DType, op.ReduceOp = tensor.Bool, tensor.Average }))
	add("§1.4, 4", "scaling of bool", "UNKNOWN_ERROR, not supported by ScaleBufferCPUImpl", engine.InvalidArgument,
		`Allreduce of tensor "x" (sum): reduce: bool elements cannot be scaled`, same(operation.Allreduce,
			func(op *engine.Op) { op.DType, op.Prescale = tensor.Bool, 0.5 }))
	add("–", "bits of floats", "–", engine.InvalidArgument,
		`Allreduce of tensor "x": there is no bxor of float32; it takes uint8, int8, uint16, int16, int32, int64 and bool.`,
		same(operation.Allreduce, func(op *engine.Op) { op.ReduceOp = tensor.BitXor }))
	add("§1.4, 4", "Adasum of integers", "UNKNOWN_ERROR", engine.InvalidArgument,
		`Adasum of tensor "x": int32 is not supported; floating-point types are.`,
		same(operation.Adasum, func(op *engine.Op) { op.DType = tensor.Int32 }))
	for _, c := range barriers {
		horovods := "INVALID_ARGUMENT, Op: Rank N is not a member of the provided process set."
		if c.kind == operation.Join {
			horovods = "not checked"
		}
		add("§1.4, 5", "not a member", horovods, engine.InvalidArgument,
			c.name+": Rank %d is not a member of the provided process set.",
			func(rank int) *engine.Op {
				return with(c.kind, func(op *engine.Op) {
					op.Set, op.Root = pairsFirst+rank, (rank+1)%refusalRanks
					op.Splits = []int32{100} // alltoall's counts come after the membership
				})
			})
	}
	return all
}

// TestRefusals makes every mistake that Horovod checks, by every rank in turn, and reads the answer on every rank.
// Afterwards the engine still works. The texts stand in docs/contract.md.
func TestRefusals(t *testing.T) {
	asProcesses(t)
	var tables []string
	for _, transport := range []string{"shm", "tcp", "on aba"} {
		t.Run(transport, func(t *testing.T) {
			all := refusing(t, transport)
			var b strings.Builder
			b.WriteString("| check | condition | who is told | Horovod's | here |\n|---|---|---|---|---|\n")
			row := func(check, condition, told, horovods string, code engine.Code, text string) {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %d: `%s` |\n", check, condition, told, horovods, code, text)
			}
			row("§1.4", "not initialised", "the rank that errs", "PRECONDITION_ERROR, not initialised; call "+
				"`hvd.init()`", engine.ErrNotInitialized.Code, engine.ErrNotInitialized.Reason)
			for _, f := range refusals() {
				row(f.check, f.condition, "the rank that errs", f.horovods, f.code, all.refuse(f))
			}
			row("§1.4, 6", "name in use", "the rank that errs", "INVALID_ARGUMENT, DUPLICATE_NAME_ERROR",
				engine.InvalidArgument, all.duplicates())
			for _, d := range disagreements() {
				row("§1.5, "+d.check, d.condition, "all ranks", d.horovods, engine.PreconditionError, all.disagree(d))
			}
			all.leave()
			_, err := add(all.ws[0], "x", 1)
			if err == nil || err.Code != engine.UnknownError {
				t.Fatalf("after the shutdown: %v", err)
			}
			text, _, _ := strings.Cut(err.Reason, " The first to leave")
			row("§1.4, 3", "shut down", "all ranks that submit", "UNKNOWN_ERROR, SHUT_DOWN_ERROR", err.Code, text)
			tables = append(tables, b.String())
		})
	}
	if t.Failed() || len(tables) < 2 { // -run may have chosen one of the tests
		return
	}
	if tables[0] != tables[1] {
		t.Errorf("the transports differ:\n%s\n%s", tables[0], tables[1])
	}
	section(t, "refusals", tables[0])
}

// TestAnyTwoKindsUnderOneNameAreRefused lets the ranks differ in the kind of operation, in every way.
func TestAnyTwoKindsUnderOneNameAreRefused(t *testing.T) {
	asProcesses(t)
	all := refusing(t, "shm")
	for _, common := range collectivesOf {
		for _, rare := range collectivesOf {
			if rare == common {
				continue
			}
			all.disagree(disagreement{begins: "Mismatched operations: One rank did an %v, but another rank did an %v.",
				odd: rare.kind, common: common.kind, op: func(odd bool) *engine.Op {
					if odd {
						return plainOp(rare.kind, 6)
					}
					return plainOp(common.kind, 6)
				}})
		}
	}
}

// refusing joins a world with the process sets {1, 2}, {0, 2} and {0, 1}.
func refusing(t *testing.T, transport string) *worlds {
	all := &worlds{t: t, transport: transport, ws: make([]*World, refusalRanks), here: []int{0, 1, 2}}
	l := newLauncher(t, refusalRanks)
	each(refusalRanks, func(r int) {
		c := l.config(r, refusalRanks, transport)
		c.FusionThreshold = refusalThreshold
		o := quiet()
		o.Sets = [][]int{{1, 2}, {0, 2}, {0, 1}}
		w, err := join(context.Background(), c, 1, o)
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

// one runs an operation on a rank and returns how it fails.
func (all *worlds) one(rank int, name string, op *engine.Op) *engine.Error {
	op.Name = name
	en, err := all.ws[rank].Engine.Enqueue(op)
	if err != nil {
		return err
	}
	defer en.Release()
	if !en.Wait(limit) {
		return &engine.Error{Code: engine.InProgress, Reason: "is not done"}
	}
	return en.Err()
}

// works makes sure that the engines still give right results: in the world, under the name that was refused, and in the
// sets.
func (all *worlds) works(what string) {
	all.t.Helper()
	each(len(all.ws), func(r int) {
		for _, name := range []string{"x", "after", "x"} {
			if v, err := add(all.ws[r], name, float32(r+1)); err != nil || v != 6 {
				all.t.Errorf("%s: rank %d: afterwards the sum is %v: %v", what, r, v, err)
			}
		}
		for set := pairsFirst; set < pairsFirst+refusalRanks; set++ {
			if set-pairsFirst == r {
				continue
			}
			op := plainOp(operation.Barrier, 0)
			op.Set = set
			if err := all.one(r, "barrier.noname", op); err != nil {
				all.t.Errorf("%s: rank %d: afterwards set %d: %v", what, r, set, err)
			}
		}
		if n := len(all.ws[r].Engine.Waiting()); n != 0 {
			all.t.Errorf("%s: rank %d: %d operations are left", what, r, n)
		}
	})
}

// refuse lets each rank in turn make the mistake, alone and within a group, and
// returns the text that rank 0 gets.
func (all *worlds) refuse(f refusal) (text string) {
	what := f.begins
	for r := range all.ws {
		begins := f.begins
		if strings.Contains(begins, "%d") {
			begins = fmt.Sprintf(begins, r)
		}
		op := f.op(r)
		op.Name = "x"
		en, err := all.ws[r].Engine.Enqueue(op)
		switch {
		case err == nil:
			all.t.Errorf("%s: rank %d: is accepted", what, r)
			en.Release()
		case err.Code != f.code || !strings.HasPrefix(err.Reason, begins):
			all.t.Errorf("%s: rank %d: %d %s", what, r, err.Code, err.Reason)
		}
		if r == 0 && err != nil {
			text = err.Reason
		}
		if kind := op.Type; kind != operation.Barrier && kind != operation.Join {
			good, bad := with(kind, func(o *engine.Op) { o.Set, o.Root = op.Set, op.Root }), f.op(r)
			good.Name, bad.Name = "good", "x"
			if _, err := all.ws[r].Engine.EnqueueGroup("g", []engine.Op{*good, *bad}); err == nil ||
				err.Code != f.code {
				all.t.Errorf("%s: rank %d: in a group: %v", what, r, err)
			}
		}
	}
	all.works(what)
	return text
}

// duplicates submits a name that is in use, for each kind of operation. That does not disturb the first operation.
func (all *worlds) duplicates() (text string) {
	for odd := range all.ws {
		first := floatsOf(1)
		op := plainOp(operation.Allreduce, 1)
		op.In, op.Out, op.Name = first, first, "twice"
		e := all.ws[odd].Engine
		en, err := e.Enqueue(op)
		if err != nil {
			all.t.Fatal(err)
		}
		for _, c := range collectivesOf {
			if err := all.one(odd, "twice", plainOp(c.kind, 6)); err == nil || err.Code != engine.InvalidArgument ||
				!strings.HasPrefix(err.Reason, `Duplicate tensor name "twice"`) {
				all.t.Errorf("rank %d: %s under a name in use: %v", odd, c.name, err)
			} else {
				text = err.Reason
			}
		}
		group := []engine.Op{*plainOp(operation.Allreduce, 6), *plainOp(operation.Allreduce, 6)}
		group[0].Name, group[1].Name = "fresh", "twice"
		if _, err := e.EnqueueGroup("g", group); err == nil || err.Code != engine.InvalidArgument {
			all.t.Errorf("rank %d: a group with a name in use: %v", odd, err)
		}
		if n := len(e.Waiting()); n != 1 {
			all.t.Errorf("rank %d: %d operations are pending", odd, n)
		}
		each(len(all.ws), func(r int) {
			if r != odd {
				if v, err := add(all.ws[r], "twice", 1); err != nil || v != refusalRanks {
					all.t.Errorf("rank %d: %v %v", r, v, err)
				}
				return
			}
			if !en.Wait(limit) || en.Err() != nil || !bytes.Equal(first, floatsOf(refusalRanks)) {
				all.t.Errorf("rank %d: the first of the name: %v %v", r, first, en.Err())
			}
			en.Release()
		})
		all.works("name in use")
	}
	return text
}

func floatsOf(v float64) []byte { return appendFloat(nil, tensor.Float32, v) }

// disagree lets each rank in turn be the odd one. All get the same reason. It returns the reason for rank 1 as the odd
// one.
func (all *worlds) disagree(d disagreement) (text string) {
	for odd := range all.ws {
		// Give the name cards, so that the ranks also disagree with a remembered operation.
		all.works(d.begins)
		begins := d.begins
		switch {
		case d.odd == nil:
		case odd == 0:
			begins = fmt.Sprintf(d.begins, d.odd, d.common)
		default:
			begins = fmt.Sprintf(d.begins, d.common, d.odd)
		}
		errs := make([]*engine.Error, len(all.ws))
		each(len(all.ws), func(r int) {
			if !d.joined {
				errs[r] = all.one(r, "x", d.op(r == odd))
				return
			}
			if r != odd {
				errs[r] = all.one(r, "x", d.op(false))
			}
			if err := all.one(r, engine.JoinName, plainOp(operation.Join, 0)); err != nil {
				all.t.Errorf("%s: rank %d cannot join: %v", d.begins, r, err)
			}
		})
		told := errs[(odd+1)%len(errs)]
		for r, err := range errs {
			switch {
			case d.joined && r == odd:
			case err == nil || err.Code != engine.PreconditionError || !strings.HasPrefix(err.Reason, begins) ||
				err.Reason != told.Reason:
				all.t.Errorf("%s: rank %d, odd rank %d: %v", d.begins, r, odd, err)
			}
		}
		if odd == 1 && told != nil {
			text = told.Reason
		}
		all.works(d.begins)
	}
	return text
}

// Within a set the reasons name world ranks, and the ranks outside notice nothing.
func TestDisagreementInASet(t *testing.T) {
	asProcesses(t)
	for _, transport := range []string{"shm", "tcp", "on aba"} {
		t.Run(transport, func(t *testing.T) {
			all := refusing(t, transport)
			each(refusalRanks, func(r int) {
				if r == 0 {
					return
				}
				op := with(operation.Broadcast, func(op *engine.Op) { op.Set, op.Root = pairsFirst, r })
				err := all.one(r, "x", op)
				want := "Mismatched BROADCAST root ranks: One rank specified root rank 1, but another rank specified " +
					"root rank 2. (rank 1: 1; rank 2: 2)"
				if err == nil || err.Code != engine.PreconditionError || err.Reason != want {
					t.Errorf("rank %d: %v", r, err)
				}
			})
			all.works("roots in a set")
		})
	}
}

// After a rank has shut down the others' operations end with Horovod's text, pending ones and later ones. Then a new
// generation works.
func TestShutDownError(t *testing.T) {
	asProcesses(t)
	for _, transport := range []string{"shm", "tcp", "on aba"} {
		for gone := range refusalRanks {
			t.Run(fmt.Sprintf("%s/rank %d", transport, gone), func(t *testing.T) {
				t.Parallel() // each waits for news of a death, which does not come
				l := newLauncher(t, refusalRanks)
				each(refusalRanks, func(r int) {
					outliveShutdown(t, l.config(r, refusalRanks, transport), r == gone)
				})
				each(refusalRanks, func(r int) {
					w, err := join(context.Background(), l.config(r, refusalRanks, transport), 2, quiet())
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					defer w.Leave(limit)
					addOnes(t, w)
				})
			})
		}
	}
}

// outliveShutdown lets a rank of the first generation leave, or see that another one has left.
func outliveShutdown(t *testing.T, c *config.Config, leaves bool) {
	w, err := join(context.Background(), c, 1, quiet())
	if err != nil {
		t.Error(err)
		return
	}
	addOnes(t, w)
	if leaves {
		w.Leave(limit)
	} else {
		defer w.Leave(limit)
	}
	for _, name := range []string{"pending", "later"} {
		_, err := add(w, name, 1)
		if err == nil || err.Code != engine.UnknownError ||
			!strings.HasPrefix(err.Reason, "Horovod has been shut down") {
			t.Errorf("rank %d: %s: %v", w.Place.Rank, name, err)
		}
	}
}

func addOnes(t *testing.T, w *World) {
	if v, err := add(w, "x", 1); err != nil || v != refusalRanks {
		t.Errorf("rank %d: %v %v", w.Place.Rank, v, err)
	}
}
