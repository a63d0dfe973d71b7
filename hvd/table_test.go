package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/hvd"
)

// sparseTables is the part of TestJobs about tables. Each rank asks for other keys, with some in common.
func sparseTables(ctx context.Context, r, n int) error {
	a, err := hvd.NewTable(hvd.TableOptions{Name: "a", Dim: 3, Seed: 5, Optimizer: hvd.SGD(1)})
	if err != nil {
		return err
	}
	b, err := hvd.NewTable(hvd.TableOptions{Name: "b", Dim: 1, Keys: 1000, Zeros: true, Optimizer: hvd.Adagrad(1)})
	if err != nil {
		return err
	}
	keys := []int64{-7, int64(r), 1 << 40, -7, int64(r + 1)}
	before, after, ones := make([]float32, 15), make([]float32, 15), slices.Repeat([]float32{1}, 15)
	film := []float32{9}
	err = hvd.PullTables(ctx, hvd.TableBatch{Table: a, Keys: keys, Rows: before},
		hvd.TableBatch{Table: b, Keys: []int64{int64(r)}, Rows: film})
	if err != nil || film[0] != 0 || before[0] == before[3] {
		return fmt.Errorf("pull %v, %v: %w", before, film, err)
	}
	for _, rate := range []float32{0.5, 0.25} { // a schedule
		a.SetRate(rate)
		if err := a.Push(ctx, keys, ones); err != nil {
			return err
		}
	}
	if err := a.Pull(ctx, keys, after); err != nil {
		return err
	}
	pushes := []int{2 * n, 1, n, 2 * n, 1} // how often all ranks together have the key
	if r > 0 {
		pushes[1]++
	}
	if r < n-1 {
		pushes[4]++
	}
	for i := range after {
		want := before[i]
		for _, rate := range []float32{0.5, 0.25} {
			want -= rate * float32(pushes[i/3])
		}
		if after[i] != want {
			return fmt.Errorf("rank %d: number %d is %v, was %v, want %v", r, i, after[i], before[i], want)
		}
	}
	sum := []int64{int64(a.Len()), int64(b.Len())}
	if err := hvd.Allreduce(ctx, "lengths", sum, hvd.WithOp(hvd.Sum)); err != nil || sum[0] != int64(n+3) ||
		sum[1] != int64(n) {
		return fmt.Errorf("%d rows, want %d: %w", sum, n+3, err)
	}
	found := 0
	a.All(func(key int64, weights []float32) bool {
		found += len(weights)
		return key != 1<<62
	})
	if found != 3*a.Len() {
		return fmt.Errorf("%d numbers in %d rows", found, a.Len())
	}
	return wrongTables(ctx, r, n, b)
}

// wrongTables are mistakes: of all ranks, or of the last one alone.
func wrongTables(ctx context.Context, r, n int, b *hvd.Table) error {
	_, err := hvd.NewTable(hvd.TableOptions{Name: "a", Dim: 3, Optimizer: hvd.SGD(1)})
	if !errors.Is(err, hvd.ErrInvalidArgument) || !strings.Contains(err.Error(), "has a table of this name") {
		return fmt.Errorf("a second table a: %v", err)
	}
	want := hvd.ErrMismatch
	key := int64(1)
	if r == n-1 {
		key, want = 1000, hvd.ErrInvalidArgument
	}
	err = b.Pull(ctx, []int64{key}, []float32{0})
	if !errors.Is(err, want) || !strings.Contains(err.Error(), `"pull.b"`) ||
		!strings.Contains(err.Error(), "key 1000 at position 0 is not one of 0 to 999") {
		return fmt.Errorf("rank %d, a key out of range: %v", r, err)
	}
	if err := b.Push(ctx, []int64{1}, nil); !errors.Is(err, hvd.ErrInvalidArgument) ||
		!strings.Contains(err.Error(), "0 numbers for 1 keys; 1 are needed") {
		return fmt.Errorf("too few gradients: %v", err)
	}
	twice := hvd.TableBatch{Table: b}
	if err := hvd.PullTables(ctx, twice, twice); !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("a table twice: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.Pull(over, nil, nil); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a context that is over: %v", err)
	}
	if n == 1 {
		return nil
	}
	rate := float32(1)
	if r == n-1 {
		rate = 2
	}
	b.SetRate(rate)
	says := fmt.Sprintf("Mismatched learning rates: rank 0 has 1, rank %d has 2.", n-1)
	if err := b.Push(ctx, nil, nil); !errors.Is(err, hvd.ErrMismatch) || !strings.Contains(err.Error(), says) {
		return fmt.Errorf("other learning rates: %v", err)
	}
	_, err = hvd.NewTable(hvd.TableOptions{Name: "c", Dim: 1 + r, Optimizer: hvd.SGD(1)})
	if !errors.Is(err, hvd.ErrMismatch) ||
		!strings.Contains(err.Error(), "Mismatched dim: rank 0 has 1, rank 1 has 2.") {
		return fmt.Errorf("other dims: %v", err)
	}
	return nil
}

// tableFiles is the part of TestJobs about saves of tables.
func tableFiles(ctx context.Context, r, n int) error {
	process := []int64{int64(os.Getpid())} // rank 0's is part of a name that all know
	if err := hvd.Broadcast(ctx, "process", process, 0); err != nil {
		return err
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("gorovod-table-%d", process[0]))
	defer os.RemoveAll(dir)
	t, err := hvd.NewTable(hvd.TableOptions{Name: "saved", Dim: 2, Zeros: true, Optimizer: hvd.Adam(0.5)})
	if err != nil {
		return err
	}
	keys, ones, rows, again := []int64{int64(r), -1}, []float32{1, 1, 1, 1}, make([]float32, 4), make([]float32, 4)
	if err := t.Push(ctx, keys, ones); err != nil {
		return err
	}
	if err := firstOf(t.Pull(ctx, keys, rows), t.Save(dir), t.Push(ctx, keys, ones), t.Load(dir)); err != nil {
		return err
	}
	if err := t.Pull(ctx, keys, again); err != nil || !slices.Equal(rows, again) {
		return fmt.Errorf("loaded %v, want %v: %w", again, rows, err)
	}
	if err := t.Load(dir + "-none"); !errors.Is(err, hvd.ErrStorage) ||
		!strings.Contains(err.Error(), "no save of a table") {
		return fmt.Errorf("no save: %v", err)
	}
	other, err := hvd.NewTable(hvd.TableOptions{Name: "other", Dim: 2, Zeros: true, Optimizer: hvd.Adam(0.5)})
	if err != nil {
		return err
	}
	if err := other.Load(dir); !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("a save of another table: %v", err)
	}
	if err := t.Save(fmt.Sprintf("%s-%d", dir, r)); n > 1 && !errors.Is(err, hvd.ErrMismatch) {
		return fmt.Errorf("different directories: %v", err)
	}
	return os.RemoveAll(fmt.Sprintf("%s-%d", dir, r))
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
