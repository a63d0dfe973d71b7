package hvd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// horovodrun runs one part of this program, by name, on four ranks of two pretended hosts. Ranks 0 and 2 lead the
// hosts.
func horovodrun(t *testing.T, part string, env ...string) {
	t.Helper()
	run, err := filepath.Abs("../build/horovodrun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(run); err != nil {
		t.Skip("build/horovodrun is not there: run make build first")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, run, "-np", "4", "-H", "localhost:2,127.0.0.1:2", os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "HVD_TEST_RANK="+part, "HVD_TEST_DIR="+t.TempDir())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// When a rank leaves, operations that wait for it end, even while the leaders of both hosts compute. The leaders
// compute until rank 1 has seen its operation end.
func TestLeavingWhileLeadersCompute(t *testing.T) { horovodrun(t, "leave") }

func leave(ctx context.Context) error {
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	r := hvd.Rank()
	if hvd.CrossSize() != 2 || hvd.LocalSize() != 2 {
		return fmt.Errorf("%d hosts of %d ranks", hvd.CrossSize(), hvd.LocalSize())
	}
	if err := hvd.Allreduce(ctx, "all", []float32{1}); err != nil {
		return err
	}
	seen := filepath.Join(os.Getenv("HVD_TEST_DIR"), "seen")
	switch r {
	case 3:
		return nil // Shutdown
	case 1:
		if err := hvd.Allreduce(ctx, "more", []float32{1}); err == nil || !strings.Contains(err.Error(),
			"Horovod has been shut down") {
			return fmt.Errorf("an operation that rank 3 cannot have: %w", err)
		}
		return os.WriteFile(seen, nil, 0o600)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(seen); err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("rank 1 does not learn that rank 3 has left")
		}
	}
}

// A rank that joins early and a rank whose requests change make progress, although the leaders compute in between.
func TestJoinWhileLeadersCompute(t *testing.T) { horovodrun(t, "join") }

func join(ctx context.Context) error {
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	r := hvd.Rank()
	for epoch := range 3 {
		steps := []int{6, 2, 5, 1}[r] // the leaders have most to do
		for step := range steps {
			if r%2 == 0 {
				time.Sleep(time.Millisecond)
			}
			x := make([]float32, 1+(step+epoch)%2) // another shape each time
			x[0] = 1
			if err := hvd.Allreduce(ctx, "x", x, hvd.WithOp(hvd.Sum)); err != nil {
				return fmt.Errorf("epoch %d, step %d: %w", epoch, step, err)
			}
			want := float32(0)
			for _, n := range []int{6, 2, 5, 1} {
				if step < n {
					want++
				}
			}
			if x[0] != want {
				return fmt.Errorf("epoch %d, step %d: %v, want %v", epoch, step, x[0], want)
			}
		}
		if last, err := hvd.Join(ctx); err != nil || last != 0 {
			return fmt.Errorf("epoch %d: the last to join is %d: %w", epoch, last, err)
		}
	}
	return nil
}
