package world

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/tensor"
)

const (
	mpiRankVariable  = "WORLD_TEST_MPI"      // makes this test's binary a rank: where the rendezvous is
	mpiTypesVariable = "WORLD_TEST_MPI_TYPE" // a number of element types, the first of mpiTypes
	mpiLibVariable   = "GOROVOD_MPI_LIBRARY"
	mpiLimitVariable = "WORLD_TEST_MPI_LIMIT" // the most bytes of one call of MPI; 0: as ever
	// mpiAllVariable asks for all types and sizes, which takes minutes.
	mpiAllVariable = "GOROVOD_TEST_MPI_ALL"
	mpiTally       = "passed: "
	mpiVersion     = "library: "
)

// mpiTypes are the element types, the most telling first.
var mpiTypes = []tensor.DType{tensor.BFloat16, tensor.Int32, tensor.Float32, tensor.Bool, tensor.Float16, tensor.Uint8, tensor.Int8, tensor.Uint16, tensor.Int16, tensor.Int64, tensor.Float64}

// implementations are those of MPI that the test looks for: how they start n ranks.
var implementations = []struct {
	name    string
	library string // empty: what is found; else Debian's file with the binary interface of MPI 5
	start   []string
}{
	{"Open MPI", "", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"}},
	{"MPICH", "", []string{"mpirun.mpich", "-n"}},
	{"Open MPI's standard interface", "libmpi_abi_openmpi.so.1.0.0", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"}},
	{"MPICH's standard interface", "libmpi_abi_mpich.so.1.0.0", []string{"mpirun.mpich", "-n"}},
}

// TestContractOverMPI is TestContract over each MPI that is installed, each rank a process.
func TestContractOverMPI(t *testing.T) {
	if os.Getenv(mpiRankVariable) != "" {
		t.Skip("this is a rank")
	}
	for _, i := range implementations {
		t.Run(i.name, func(t *testing.T) {
			path, err := exec.LookPath(i.start[0])
			if err != nil {
				t.Skipf("%s is not installed: %v", i.name, err)
			}
			if raceDetector {
				t.Skip("MPI's threads are not the race detector's")
			}
			if i.library != "" {
				// Loading it would bind this process, which is no rank.
				if found, _ := filepath.Glob("/usr/lib/*/" + i.library); len(found) == 0 {
					t.Skipf("%s is not installed", i.library)
				}
			}
			sizes, types := []int{3}, 2
			if os.Getenv(mpiAllVariable) != "" {
				sizes, types = []int{2, 3, 4}, len(mpiTypes)
			}
			var done, refused int
			for _, n := range sizes {
				passed := runOverMPI(t, path, i.start[1:], i.library, n, types, 0)
				done, refused = done+passed[0], refused+passed[1]
			}
			t.Logf("%s: %d cases done, %d refused", i.name, done, refused)
			// What is too long for one call, and what is not divisible by the sizes of elements.
			passed := runOverMPI(t, path, i.start[1:], i.library, 3, 1, 3001)
			t.Logf("%s in calls of 3001 bytes: %d cases done, %d refused", i.name, passed[0], passed[1])
		})
	}
}

// runOverMPI runs n ranks, and returns how many cases were done and refused. most is that of a call of MPI, 0 for the usual.
func runOverMPI(t *testing.T, mpirun string, args []string, library string, n, types, most int) (passed [2]int) {
	t.Helper()
	l := newLauncher(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	args = append(append([]string{}, args...), strconv.Itoa(n), os.Args[0], "-test.run=^TestRankOverMPI$", "-test.v", "-test.timeout=10m")
	c := exec.CommandContext(ctx, mpirun, args...)
	c.WaitDelay = 10 * time.Second
	c.Env = append(os.Environ(), mpiRankVariable+"="+l.addr, mpiTypesVariable+"="+strconv.Itoa(types), mpiLimitVariable+"="+strconv.Itoa(most), mpiLibVariable+"="+library)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%d ranks by %v: %v\n%s", n, mpirun, err, tail(out.Bytes()))
	}
	_, after, ok := bytes.Cut(out.Bytes(), []byte(mpiTally))
	if version := cutLine(out.String(), mpiVersion); version != "" {
		t.Logf("%d ranks of %s", n, version)
	}
	if !ok || json.NewDecoder(bytes.NewReader(after)).Decode(&passed) != nil || passed[0] == 0 {
		t.Fatalf("%d ranks by %v say nothing of what has passed:\n%s", n, mpirun, tail(out.Bytes()))
	}
	return passed
}

// cutLine is the rest of the line after a text; empty if there is none.
func cutLine(all, text string) string {
	_, after, _ := strings.Cut(all, text)
	line, _, _ := strings.Cut(after, "\n")
	return line
}

// tail is the beginning and the end of an output, where what matters stands.
func tail(p []byte) []byte {
	const part = 4000
	if len(p) <= 2*part {
		return p
	}
	return slices.Concat(p[:part], []byte("\n[…]\n"), p[len(p)-part:])
}

// TestRankOverMPI is one rank of the above.
func TestRankOverMPI(t *testing.T) {
	addr := os.Getenv(mpiRankVariable)
	if addr == "" {
		t.Skip("this process was not started as a rank of MPI")
	}
	l, err := mpi.Load(os.Getenv(mpiLibVariable))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Init(os.Getenv("HOROVOD_MPI_THREADS_DISABLE") != ""); err != nil {
		t.Fatal(err)
	}
	switch most, err := strconv.Atoi(os.Getenv(mpiLimitVariable)); {
	case err != nil:
		t.Fatal(err)
	case most > 0:
		mpi.SetLimit(most)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	processes, err := l.Duplicate(ctx, l.World())
	if err != nil {
		t.Fatal(err)
	}
	n, rank := processes.Size(), processes.Rank()
	if rank == 0 {
		fmt.Printf("\n%s%s\n", mpiVersion, l.Version())
	}
	c := (&launcher{addr: addr}).config(rank, n, "auto")
	c.LocalSize = 64 // more than cores: who waits does not spin
	c.CacheCapacity = 64
	c.CPUOperations = config.MPI
	o := quiet()
	o.MPI = processes
	w, err := Join(ctx, c, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	all := &worlds{t: t, transport: "mpi", ws: make([]*World, n), here: []int{rank}}
	all.ws[rank] = w
	number := 0
	all.exchange = func(mine []byte) [][]byte {
		number++
		return allgatherBytes(t, w, fmt.Sprintf("exchange %d", number), mine)
	}
	var c0 cell
	types, err := strconv.Atoi(os.Getenv(mpiTypesVariable))
	if err != nil {
		t.Fatal(err)
	}
	for _, dt := range mpiTypes[:types] {
		for _, row := range rows {
			all.tryAll(row.name, row.steps(dt, n), &c0)
		}
		all.tryJoin(dt, &c0)
	}
	for range 50 {
		all.tryBarrierByClock(&c0)
	}
	w.Leave(limit)
	processes.Free()
	l.Finalize()
	if rank == 0 && !t.Failed() {
		fmt.Printf("\n%s[%d,%d]\n", mpiTally, c0.done, c0.refused)
	}
}

// tryBarrierByClock is tryBarrier for ranks of several processes of a host: none has left before the last has entered.
func (all *worlds) tryBarrierByClock(c *cell) {
	r := all.here[0]
	entered := time.Now().UnixNano()
	en, err := all.ws[r].Engine.Enqueue(&engine.Op{Type: negotiate.Barrier, Name: "barrier.noname", DType: tensor.Uint8, Prescale: 1, Postscale: 1, WillWait: true})
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

// allgatherBytes is what each rank gives, of the same length.
func allgatherBytes(t *testing.T, w *World, name string, mine []byte) [][]byte {
	t.Helper()
	var all []byte
	en, err := w.Engine.Enqueue(&engine.Op{Type: negotiate.Allgather, DType: tensor.Uint8, Name: name, Shape: tensor.Shape{int64(len(mine))}, Prescale: 1, Postscale: 1,
		In: mine, WillWait: true, Alloc: func(s tensor.Shape, n int) ([]byte, error) { all = make([]byte, n); return all, nil }})
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
