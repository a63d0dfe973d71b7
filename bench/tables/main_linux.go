// Command tables measures the memory of a large sparse table: each rank fills its share of the rows by pulls of the
// common keys, with a push now and then, and rank 0 compares the ranks' highest use of memory with what the rows need.
//
//	horovodrun -np 4 build/tables -rows 100000000
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// most is how many times the bytes that the rows need the ranks may use at their peak, and of each rank the fixed bytes
// of its process and transport.
const (
	most  = 1.5
	fixed = 64 << 20
)

func main() {
	rows := flag.Int("rows", 100_000_000, "of all ranks together")
	dim := flag.Int("dim", 16, "numbers of a row")
	batch := flag.Int("batch", 50_000, "keys that a rank pulls at a time")
	flag.Parse()
	if err := run(*rows, *dim, *batch); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

func run(rows, dim, batch int) error {
	ctx := context.Background()
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	rank, size := hvd.Rank(), hvd.Size()
	table, err := hvd.NewTable(hvd.TableOptions{Name: "rows", Dim: dim, Optimizer: hvd.RowwiseAdagrad(0.1)})
	if err != nil {
		return err
	}
	before, err := status("VmRSS")
	if err != nil {
		return err
	}
	keys, numbers := make([]int64, batch), make([]float32, batch*dim)
	began := time.Now()
	for n, step := 0, 0; n < rows; n, step = n+batch*size, step+1 {
		mine := keys[:max(0, min(batch, rows-n-batch*rank))]
		for i := range mine {
			mine[i] = int64(n + batch*rank + i)
		}
		if err := table.Pull(ctx, mine, numbers[:len(mine)*dim]); err != nil {
			return err
		}
		if step%10 == 0 {
			if err := table.Push(ctx, mine, numbers[:len(mine)*dim]); err != nil {
				return err
			}
		}
	}
	took := time.Since(began)
	peak, err := status("VmHWM")
	if err != nil {
		return err
	}
	sums := []int64{int64(table.Len()), peak, peak - before}
	if err := hvd.Allreduce(ctx, "peaks", sums, hvd.WithOp(hvd.Sum)); err != nil {
		return err
	}
	needed := int64(rows) * int64(4*dim+4+8+12) // weights, one sum of squares, the key and its counts
	limit := int64(most*float64(needed)) + int64(size)*fixed
	if rank == 0 {
		fmt.Printf("%d rows of %d numbers on %d ranks in %.0f s: at their peaks the ranks use %s (%s more than "+
			"before), %.2f times the %s that the rows need; %s allowed\n", sums[0], dim, size, took.Seconds(),
			gb(sums[1]), gb(sums[2]), float64(sums[1])/float64(needed), gb(needed), gb(limit))
	}
	if sums[0] != int64(rows) {
		return fmt.Errorf("there are %d rows, not %d", sums[0], rows)
	}
	if sums[1] > limit {
		return fmt.Errorf("the ranks use %s, more than %s", gb(sums[1]), gb(limit))
	}
	return nil
}

func gb(n int64) string { return fmt.Sprintf("%.2f GB", float64(n)/1e9) }

// status is a line of /proc/self/status in bytes.
func status(name string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", name)
}
