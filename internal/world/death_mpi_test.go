package world

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/backend/mpi"
	"github.com/gorovod/gorovod/internal/config"
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/tensor"
)

// mpiDeathVariable makes a rank of TestDeathOverMPI one that dies.
const mpiDeathVariable = "WORLD_TEST_MPI_DEATH"

const mpiEnded = "ended: "

// When a process dies amid an operation that MPI carries, those of the others end, and say who it
// was. MPI itself would let them wait for ever, here where mpirun does not end them.
func TestDeathOverMPI(t *testing.T) {
	if os.Getenv(mpiRankVariable) != "" {
		t.Skip("this is a rank")
	}
	mpirun, err := exec.LookPath("mpirun.openmpi")
	if err != nil {
		t.Skipf("Open MPI is not installed: %v", err)
	}
	if raceDetector {
		t.Skip("MPI's threads are not the race detector's")
	}
	const n = 3
	l := newLauncher(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	c := exec.CommandContext(ctx, mpirun, "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "-n", strconv.Itoa(n), os.Args[0], "-test.run=^TestDyingRankOverMPI$", "-test.v")
	c.WaitDelay = 10 * time.Second
	c.Env = append(os.Environ(), mpiRankVariable+"="+l.addr, mpiDeathVariable+"=1")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.Run() // fails, since one has died
	if ctx.Err() != nil {
		t.Fatalf("it does not end:\n%s", tail(out.Bytes()))
	}
	ended := 0
	for line := range strings.Lines(out.String()) {
		if _, cause, ok := strings.Cut(line, mpiEnded); ok {
			t.Log(strings.TrimSpace(cause))
			if ended++; !strings.Contains(cause, "rank 1") {
				t.Errorf("the cause does not tell of rank 1: %s", cause)
			}
		}
	}
	if ended != n-1 {
		t.Fatalf("%d ranks of %d say why they end:\n%s", ended, n-1, tail(out.Bytes()))
	}
}

// TestDyingRankOverMPI is one rank of the above.
func TestDyingRankOverMPI(t *testing.T) {
	addr := os.Getenv(mpiRankVariable)
	if addr == "" || os.Getenv(mpiDeathVariable) == "" {
		t.Skip("this process was not started as a rank of MPI")
	}
	l, err := mpi.Load("")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Init(false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	processes, err := l.Duplicate(ctx, l.World())
	if err != nil {
		t.Fatal(err)
	}
	n, rank := processes.Size(), processes.Rank()
	c := (&launcher{addr: addr}).config(rank, n, "auto")
	c.LocalSize = 64
	c.CPUOperations = config.MPI
	o := quiet()
	o.MPI = processes
	w, err := Join(ctx, c, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	mine := make([]byte, 8<<20)
	for i := 0; ; i++ {
		var all []byte
		en, err := w.Engine.Enqueue(&engine.Op{Type: negotiate.Allgather, DType: tensor.Uint8, Name: "data", Shape: tensor.Shape{int64(len(mine))}, Prescale: 1, Postscale: 1,
			In: mine, WillWait: true, Alloc: func(s tensor.Shape, n int) ([]byte, error) {
				if all = make([]byte, n); rank == 1 && i == 3 {
					syscall.Kill(os.Getpid(), syscall.SIGKILL) // all have agreed on the operation
				}
				return all, nil
			}})
		if err == nil {
			if !en.Wait(limit) {
				fmt.Println("an operation does not end")
				os.Exit(1)
			}
			err = en.Err()
			en.Release()
		}
		if err != nil {
			fmt.Printf("\n%s%s\n", mpiEnded, strings.ReplaceAll(err.Error(), "\n", " "))
			w.Leave(limit)
			processes.Free()
			l.Finalize() // which leave MPI alone, as it would wait for the dead
			os.Exit(0)
		}
	}
}
