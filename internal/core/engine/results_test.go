package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Each operation has the right result on any number of ranks, over shared memory and over messages, the first time and
// from the cache.
func TestOperations(t *testing.T) {
	operations := []struct {
		name  string
		check func(t *testing.T, e *Engine, rank, size, round int)
	}{
		{"a sum is scaled before and after", checkScaledSum},
		{"average", checkAverage},
		{"an allgather of different numbers of rows", checkAllgather},
		{"a broadcast from each rank", checkBroadcast},
		{"barrier", checkBarrier},
		{"a reducescatter of rows that divide evenly or not", checkReducescatters},
		{"an alltoall by splits, whose last row nobody gets", checkAlltoall},
		{"an alltoall in equal parts", checkEvenAlltoall},
	}
	inWorlds(t, []int{1, 2, 3, 4, 5}, func(t *testing.T, engines []*Engine) {
		for _, o := range operations {
			t.Run(o.name, func(t *testing.T) {
				each(engines, func(r int, e *Engine) {
					for round := range 4 { // cached from the third on
						o.check(t, e, r, len(engines), round)
					}
				})
			})
		}
	})
}

func checkScaledSum(t *testing.T, e *Engine, rank, size, round int) {
	data := floats(float32(rank+1), 10*float32(rank+1))
	op := sum("s", data)
	op.Prescale, op.Postscale = 2, 0.5
	if err := do(t, e, op); err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
	if want := float32(size * (size + 1) / 2); float(data, 0) != want || float(data, 1) != 10*want {
		t.Errorf("round %d rank %d: sum is %v, want %v", round, rank, float(data, 0), want)
	}
}

func checkAverage(t *testing.T, e *Engine, rank, _, _ int) {
	data := floats(float32(rank), 8)
	op := sum("a", data)
	op.ReduceOp = tensor.Average
	if err := do(t, e, op); err != nil || float(data, 1) != 8 {
		t.Errorf("rank %d: average of 8 is %v, %v", rank, float(data, 1), err)
	}
}

// Rank r sends r rows of two elements, rank 0 none.
func checkAllgather(t *testing.T, e *Engine, rank, size, _ int) {
	var in, want []byte
	for from := range size {
		rows := slices.Repeat(floats(float32(from)), 2*from)
		if want = append(want, rows...); from == rank {
			in = rows
		}
	}
	op, out, shape := made(&Op{Type: operation.Allgather, DType: tensor.Float32, Name: "g",
		Shape: tensor.Shape{int64(rank), 2}, In: in})
	if err := do(t, e, op); err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
	if rows := (tensor.Shape{int64(size * (size - 1) / 2), 2}); !shape.Equal(rows) {
		t.Errorf("rank %d: shape %v, want %v", rank, *shape, rows)
	}
	if !slices.Equal(*out, want) {
		t.Errorf("rank %d: %v, want %v", rank, *out, want)
	}
}

func checkBroadcast(t *testing.T, e *Engine, rank, size, round int) {
	root := round % size
	in := floats(float32(rank), float32(round))
	out := make([]byte, len(in))
	err := do(t, e, &Op{Type: operation.Broadcast, DType: tensor.Float32, Name: fmt.Sprint("b", root), Root: root,
		Shape: tensor.Shape{2}, Prescale: 1, Postscale: 1, In: in, Out: out})
	if err != nil || !slices.Equal(out, floats(float32(root), float32(round))) {
		t.Errorf("from %d to %d: %v, %v", root, rank, out, err)
	}
}

func checkBarrier(t *testing.T, e *Engine, rank, _, _ int) {
	err := do(t, e, &Op{Type: operation.Barrier, DType: tensor.Uint8, Name: "barrier.noname", Prescale: 1,
		Postscale: 1})
	if err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
}

func checkReducescatters(t *testing.T, e *Engine, rank, size, _ int) {
	for _, rows := range []int{0, 1, size, 2*size + 1} {
		checkReducescatter(t, e, rank, size, rows, tensor.Sum)
		checkReducescatter(t, e, rank, size, rows, tensor.Average)
	}
}

// Element i of rank r is i*(r+1), and doubled before the sum.
func checkReducescatter(t *testing.T, e *Engine, rank, size, rows int, reduce tensor.ReduceOp) {
	var in []byte
	for i := range 2 * rows {
		in = append(in, floats(float32(i*(rank+1)))...)
	}
	op, out, shape := made(&Op{Type: operation.Reducescatter, DType: tensor.Float32, ReduceOp: reduce,
		Name: fmt.Sprint(rows, reduce), Shape: tensor.Shape{int64(rows), 2}, In: in})
	op.Prescale = 2
	if err := do(t, e, op); err != nil {
		t.Errorf("rank %d of %d, %d rows: %v", rank, size, rows, err)
		return
	}
	mine, first := rows/size, rows/size*rank+min(rank, rows%size)
	if rank < rows%size {
		mine++
	}
	if want := (tensor.Shape{int64(mine), 2}); !shape.Equal(want) {
		t.Errorf("rank %d of %d, %d rows: shape %v, want %v", rank, size, rows, *shape, want)
		return
	}
	for i := range 2 * mine {
		want := 2 * float32((2*first+i)*size*(size+1)/2)
		if reduce == tensor.Average {
			want /= float32(size)
		}
		if got := float(*out, i); got < want*0.99999 || got > want*1.00001 {
			t.Errorf("rank %d of %d, %v: element %d is %v, want %v", rank, size, reduce, i, got, want)
		}
	}
}

// Rank r sends r+m+round rows to member m, and keeps one row.
func checkAlltoall(t *testing.T, e *Engine, rank, size, round int) {
	var in, want []byte
	splits := make([]int32, size)
	for m := range splits {
		splits[m] = int32(rank + m + round)
		in = append(in, slices.Repeat(floats(float32(100*rank+m)), int(splits[m]))...)
		want = append(want, slices.Repeat(floats(float32(100*m+rank)), int(splits[m]))...)
	}
	in = append(in, floats(-1)...)
	op, out, shape := made(&Op{Type: operation.Alltoall, DType: tensor.Float32, Name: "a",
		Shape: tensor.Shape{int64(len(in) / 4)}, In: in, Splits: splits})
	en, err := e.Enqueue(op)
	if err != nil {
		t.Errorf("rank %d: %v", rank, err)
		return
	}
	defer en.Release()
	if err := finish(t, e, en); err != nil {
		t.Errorf("rank %d: %v", rank, err)
		return
	}
	if got := en.ReceivedSplits(); !slices.Equal(got, splits) { // r+m+round is symmetric
		t.Errorf("rank %d received %v rows, want %v", rank, got, splits)
	}
	if !slices.Equal(*out, want) || (*shape)[0] != int64(len(want)/4) {
		t.Errorf("rank %d: %v of shape %v, want %v", rank, *out, *shape, want)
	}
}

func checkEvenAlltoall(t *testing.T, e *Engine, rank, size, _ int) {
	op, out, _ := made(&Op{Type: operation.Alltoall, DType: tensor.Uint8, Name: "even",
		Shape: tensor.Shape{int64(size)}, In: slices.Repeat([]byte{byte(rank)}, size)})
	if err := do(t, e, op); err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
	for m, from := range *out {
		if int(from) != m {
			t.Errorf("rank %d: %v", rank, *out)
		}
	}
}
