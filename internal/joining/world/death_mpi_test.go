package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// mpiDeathVariable is a directory in which the ranks write why they end, because a failing mpirun loses output.
const mpiDeathVariable = "WORLD_TEST_MPI_DEATH"

// When a process dies during an operation that MPI carries, the operations of the others end, and name it. MPI itself
// would let them wait for ever, because here mpirun does not end them.
func TestDeathOverMPI(t *testing.T) {
	// MPICH's mpirun kills all others at once, even with -disable-auto-cleanup.
	kills := func(i implementation) bool { return i.spare == nil }
	overMPI(t, slices.DeleteFunc(slices.Clone(implementations), kills), func(t *testing.T, i implementation) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
		defer cancel()
		dir := t.TempDir()
		// mpirun fails, because a rank has died, and may return before the others have ended.
		out, _ := i.mpirun(ctx, t, 3, "death", i.spare, mpiDeathVariable+"="+dir)
		for _, rank := range []int{0, 2} {
			cause := awaitFile(ctx, filepath.Join(dir, strconv.Itoa(rank)))
			t.Logf("rank %d: %s", rank, cause)
			if !strings.Contains(cause, "rank 1") {
				t.Errorf("what rank %d is told is not of rank 1: %q\n%s", rank, cause, tail(out))
			}
		}
	})
}

// awaitFile returns the contents of a file as soon as it exists; empty if ctx ends first.
func awaitFile(ctx context.Context, name string) string {
	for ctx.Err() == nil {
		if text, err := os.ReadFile(name); err == nil {
			return string(text)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ""
}

// dieAsRankOne is one rank of this test.
func dieAsRankOne(_ *testing.T, r *mpiRankOf) {
	mine := make([]byte, 8<<20)
	for i := 0; ; i++ {
		en, err := r.Engine.Enqueue(&engine.Op{Type: operation.Allgather, DType: tensor.Uint8, Name: "data",
			Shape: tensor.Shape{int64(len(mine))}, Prescale: 1, Postscale: 1,
			In: mine, WillWait: true, Alloc: func(s tensor.Shape, n int) ([]byte, error) {
				if r.rank == 1 && i == 3 {
					syscall.Kill(os.Getpid(), syscall.SIGKILL) // all have agreed on the operation
				}
				return make([]byte, n), nil
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
			r.leave()
			at := filepath.Join(os.Getenv(mpiDeathVariable), strconv.Itoa(r.rank))
			if os.WriteFile(at+".part", []byte(err.Error()), 0o600) == nil {
				os.Rename(at+".part", at)
			}
			os.Exit(0)
		}
	}
}
