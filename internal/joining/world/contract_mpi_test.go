package world

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/mpi"
	"github.com/gorovod/gorovod/internal/core/engine"
)

const (
	mpiTypesVariable = "WORLD_TEST_MPI_TYPE"  // a number of element types, the first of mpiTypes
	mpiLimitVariable = "WORLD_TEST_MPI_LIMIT" // the most bytes of one call of MPI; 0: the default
	// mpiAllVariable asks for all types and sizes, which takes minutes.
	mpiAllVariable = "GOROVOD_TEST_MPI_ALL"
	mpiTally       = "passed: "
	mpiVersion     = "library: "
)

// mpiTypes are the element types, the most telling first.
var mpiTypes = []tensor.DType{tensor.BFloat16, tensor.Int32, tensor.Float32, tensor.Bool, tensor.Float16, tensor.Uint8,
	tensor.Int8, tensor.Uint16, tensor.Int16, tensor.Int64, tensor.Float64}

// TestContractOverMPI is TestContract over each MPI that is installed, each rank a process.
func TestContractOverMPI(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand cases; TestDeathOverMPI has a few")
	}
	overMPI(t, implementations, func(t *testing.T, i implementation) {
		sizes, types := []int{3}, 2
		if os.Getenv(mpiAllVariable) != "" {
			sizes, types = []int{2, 3, 4}, len(mpiTypes)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var sum cell
		for _, n := range sizes {
			out, err := i.mpirun(ctx, t, n, "contract", nil, contractVariables(types, 0)...)
			sum.add(contractKept(t, n, out, err))
		}
		t.Logf("%s: %d cases done, %d refused", i.name, sum.done, sum.refused)
		// Operations too long for one call, and a limit that is not divisible by the sizes of elements.
		out, err := i.mpirun(ctx, t, 3, "contract", nil, contractVariables(1, 3001)...)
		short := contractKept(t, 3, out, err)
		t.Logf("%s in calls of 3001 bytes: %d cases done, %d refused", i.name, short.done, short.refused)
	})
}

func contractVariables(types, most int) []string {
	return []string{mpiTypesVariable + "=" + strconv.Itoa(types), mpiLimitVariable + "=" + strconv.Itoa(most)}
}

// contractKept sums up the cases that n ranks report as passed.
func contractKept(t *testing.T, n int, out []byte, err error) cell {
	t.Helper()
	if err != nil {
		t.Fatalf("%d ranks: %v\n%s", n, err, tail(out))
	}
	if version := cutLine(string(out), mpiVersion); version != "" {
		t.Logf("%d ranks of %s", n, version)
	}
	var passed [2]int
	_, after, ok := bytes.Cut(out, []byte(mpiTally))
	if !ok || json.NewDecoder(bytes.NewReader(after)).Decode(&passed) != nil || passed[0] == 0 {
		t.Fatalf("%d ranks say nothing of what has passed:\n%s", n, tail(out))
	}
	return cell{passed[0], passed[1]}
}

func (c *cell) add(other cell) { c.done, c.refused = c.done+other.done, c.refused+other.refused }

// keepContract is one rank of these tests.
func keepContract(t *testing.T, r *mpiRankOf) {
	switch most, err := strconv.Atoi(os.Getenv(mpiLimitVariable)); {
	case err != nil:
		t.Fatal(err)
	case most > 0:
		mpi.SetLimit(most)
	}
	if r.rank == 0 {
		fmt.Printf("\n%s%s\n", mpiVersion, r.library.Version())
	}
	all := &worlds{t: t, transport: "mpi", ws: make([]*World, r.n), here: []int{r.rank}}
	all.ws[r.rank] = r.World
	number := 0
	all.exchange = func(mine []byte) [][]byte {
		number++
		return allgatherBytes(t, r.World, fmt.Sprintf("exchange %d", number), mine)
	}
	types, err := strconv.Atoi(os.Getenv(mpiTypesVariable))
	if err != nil {
		t.Fatal(err)
	}
	var c cell
	for _, dt := range mpiTypes[:types] {
		for _, row := range rows {
			all.tryAll(row.name, row.steps(dt, r.n), &c)
		}
		all.tryJoin(dt, &c)
	}
	for range 50 {
		all.tryBarrierByClock(&c)
	}
	r.leave()
	if r.rank == 0 && !t.Failed() {
		fmt.Printf("\n%s[%d,%d]\n", mpiTally, c.done, c.refused)
	}
}

// tryBarrierByClock is tryBarrier for ranks of several processes of a host: no rank leaves before the last one has
// entered.
func (all *worlds) tryBarrierByClock(c *cell) {
	r := all.here[0]
	entered := time.Now().UnixNano()
	en, err := all.ws[r].Engine.Enqueue(&engine.Op{Type: operation.Barrier, Name: "barrier.noname", DType: tensor.Uint8,
		Prescale: 1, Postscale: 1, WillWait: true})
	if err != nil {
		all.t.Fatal(err)
	}
	if !en.Wait(limit) || en.Err() != nil {
		all.t.Fatalf("barrier: %v", en.Err())
	}
	left := time.Now().UnixNano()
	en.Release()
	for other, p := range all.exchange(binary.NativeEndian.AppendUint64(nil, uint64(entered))) {
		if there := int64(binary.NativeEndian.Uint64(p)); there > left {
			all.t.Errorf("rank %d left a barrier %d ns before rank %d entered it", r, there-left, other)
		}
	}
	c.done++
}

// allgatherBytes returns the bytes of each rank, all of the same length.
func allgatherBytes(t *testing.T, w *World, name string, mine []byte) [][]byte {
	t.Helper()
	var all []byte
	en, err := w.Engine.Enqueue(&engine.Op{Type: operation.Allgather, DType: tensor.Uint8, Name: name,
		Shape: tensor.Shape{int64(len(mine))}, Prescale: 1, Postscale: 1, In: mine, WillWait: true,
		Alloc: func(s tensor.Shape, n int) ([]byte, error) { all = make([]byte, n); return all, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer en.Release()
	if !en.Wait(limit) || en.Err() != nil {
		t.Fatalf("allgather: %v", en.Err())
	}
	var parts [][]byte
	for at := 0; at < len(all); at += len(mine) {
		parts = append(parts, all[at:at+len(mine)])
	}
	return parts
}
