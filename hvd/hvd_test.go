package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/test/leak"
)

// TestMain is also the program that the ranks of TestJobs run.
func TestMain(m *testing.M) {
	if part := os.Getenv("HVD_TEST_RANK"); part != "" {
		if err := runPart(part); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

// runPart runs one rank's part of a test.
func runPart(part string) error {
	switch part {
	case "leave":
		return leave(context.Background())
	case "join":
		return join(context.Background())
	case "grow":
		return grow(context.Background())
	case "log":
		return logAndFail()
	}
	return rank()
}

// TestJobs runs the whole interface on several processes.
func TestJobs(t *testing.T) {
	run, err := filepath.Abs("../build/horovodrun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(run); err != nil {
		t.Skip("build/horovodrun is not there: run make build first")
	}
	for _, np := range []int{1, 2, 3} {
		for _, transport := range []string{"shm", "tcp"} {
			t.Run(fmt.Sprintf("np=%d/%s", np, transport), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, run, "-np", fmt.Sprint(np), os.Args[0])
				cmd.Env = append(os.Environ(), "HVD_TEST_RANK=1", "HOROVOD_DYNAMIC_PROCESS_SETS=1",
					"HOROVOD_TIMELINE=DYNAMIC", "HVD_TEST_DIR="+t.TempDir(), "GOROVOD_TRANSPORT="+transport)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// rank is one rank's part of TestJobs. It returns the first error.
func rank() error {
	ctx := context.Background()
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	parts := []func(ctx context.Context, r, n int) error{reductions, movements, handles}
	r, n := hvd.Rank(), hvd.Size()
	if n > 1 {
		parts = append(parts, mismatch, patience, aMessage, aSetOfOne)
	}
	parts = append(parts, sparseTables, tableFiles, theWorldAsASet, grouped, twice, async, elements, unregistered,
		ended, messages, traced)
	for _, part := range parts {
		if err := part(ctx, r, n); err != nil {
			return err
		}
	}
	if last, err := hvd.Join(ctx); err != nil || last < 0 || last >= n {
		return fmt.Errorf("join %d: %w", last, err)
	}
	return deadPeer(ctx, r, n)
}

func reductions(ctx context.Context, r, n int) error {
	for range 4 {
		sum := []int64{int64(r), 1}
		err := hvd.Allreduce(ctx, "sum", sum, hvd.WithOp(hvd.Sum))
		if err != nil || sum[0] != int64(n*(n-1)/2) || sum[1] != int64(n) {
			return fmt.Errorf("sum %v: %w", sum, err)
		}
		avg := []float64{float64(r), 3}
		if err := hvd.Allreduce(ctx, "avg", avg); err != nil || avg[1] != 3 {
			return fmt.Errorf("average %v: %w", avg, err)
		}
		group := [][]float32{{1}, {float32(r), 2}}
		err = hvd.GroupedAllreduce(ctx, "group", group, hvd.WithOp(hvd.Max))
		if err != nil || group[1][0] != float32(n-1) {
			return fmt.Errorf("group %v: %w", group, err)
		}
	}
	sum, want := []int64{int64(r), 10}, []int64{int64(r), 10}
	if r == n-1 {
		want = []int64{int64(n * (n - 1) / 2), int64(10 * n)}
	}
	if err := hvd.Reduce(ctx, "r", sum, n-1, hvd.WithOp(hvd.Sum)); err != nil || !slices.Equal(sum, want) {
		return fmt.Errorf("reduce %v: %w", sum, err)
	}
	part, err := hvd.Reducescatter(ctx, "rs", slices.Repeat([]float32{1}, 2*n+1), hvd.WithOp(hvd.Sum))
	if want := 2; err != nil || r > 0 && len(part) != want || r == 0 && len(part) != want+1 || part[0] != float32(n) {
		return fmt.Errorf("reducescatter %v: %w", part, err)
	}
	return nil
}

func movements(ctx context.Context, r, n int) error {
	gathered, err := hvd.Allgather(ctx, "rows", slices.Repeat([]uint16{uint16(r)}, r))
	if err != nil || len(gathered) != n*(n-1)/2 {
		return fmt.Errorf("allgather %v: %w", gathered, err)
	}
	b := []int32{int32(r)}
	if err := hvd.Broadcast(ctx, "b", b, n-1); err != nil || b[0] != int32(n-1) {
		return fmt.Errorf("broadcast %v: %w", b, err)
	}
	splits := make([]int, n)
	var send []int8
	for m := range splits {
		splits[m] = m
		send = append(send, slices.Repeat([]int8{int8(r)}, m)...)
	}
	got, received, err := hvd.Alltoall(ctx, "a2a", send, splits)
	if err != nil || len(got) != n*r || len(received) != n || received[0] != r {
		return fmt.Errorf("alltoall %v %v: %w", got, received, err)
	}
	return hvd.Barrier(ctx)
}

func handles(ctx context.Context, _, _ int) error {
	h, err := hvd.AllreduceAsync("async", []float32{1})
	if err != nil {
		return err
	}
	if err := h.Wait(ctx); err != nil {
		return err
	}
	if !h.Done() {
		return errors.New("a handle that was waited for is not done")
	}
	if err := h.Wait(ctx); err == nil {
		return errors.New("a handle can be waited for twice")
	}
	return nil
}

func mismatch(ctx context.Context, r, _ int) error {
	err := hvd.Allreduce(ctx, "bad", make([]float32, 1+r%2))
	if !errors.Is(err, hvd.ErrMismatch) || !strings.Contains(err.Error(), "Mismatched ALLREDUCE tensor shapes") {
		return fmt.Errorf("mismatch: %w", err)
	}
	return nil
}

// patience makes rank 0 wait twice for an operation that the others submit after its first wait.
func patience(ctx context.Context, r, _ int) error {
	if r > 0 {
		if err := hvd.Barrier(ctx); err != nil {
			return err
		}
		return hvd.Allreduce(ctx, "late", []float32{1})
	}
	h, err := hvd.AllreduceAsync("late", []float32{1})
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := h.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("wait with a time-out: %w", err)
	}
	if err := hvd.Barrier(ctx); err != nil {
		return err
	}
	return h.Wait(ctx)
}

func aMessage(ctx context.Context, r, _ int) error {
	if r == 0 {
		return hvd.Send(ctx, 1, 5, []uint8("hello"))
	}
	buf := make([]uint8, 100)
	if r == 1 {
		if k, err := hvd.Recv(ctx, 0, 5, buf); err != nil || string(buf[:k]) != "hello" {
			return fmt.Errorf("received %q: %w", buf[:k], err)
		}
	}
	return nil
}

func aSetOfOne(ctx context.Context, _, _ int) error {
	set := hvd.NewProcessSet(0)
	if err := hvd.AddProcessSet(set); err != nil {
		return err
	}
	err := hvd.Allreduce(ctx, "alone", []float32{1}, hvd.WithProcessSet(set))
	if set.Included() != (err == nil) || err != nil && !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("in a set of one: %w", err)
	}
	return hvd.RemoveProcessSet(set)
}

func theWorldAsASet(_ context.Context, _, n int) error {
	all := hvd.NewProcessSet()
	for i := range n {
		all = hvd.NewProcessSet(append(all.Ranks(), i)...)
	}
	if err := hvd.AddProcessSet(all); !errors.Is(err, hvd.ErrSetExists) || !errors.Is(err, hvd.ErrInvalidArgument) {
		return fmt.Errorf("the world as a set: %w", err)
	}
	return nil
}

func TestBeforeInit(t *testing.T) {
	if hvd.IsInitialized() || hvd.Rank() != -1 || hvd.Size() != -1 || hvd.LocalRank() != -1 || hvd.LocalSize() != -1 ||
		hvd.CrossRank() != -1 || hvd.CrossSize() != -1 {
		t.Error("something is known before Init")
	}
	ctx, x := context.Background(), []float32{1}
	set := hvd.NewProcessSet(0)
	one := func(_ any, err error) error { return err }
	for i, err := range []error{
		hvd.Allreduce(ctx, "x", x), hvd.Allreduce(ctx, "x", x, hvd.WithProcessSet(set)), hvd.Barrier(ctx),
		one(hvd.BroadcastAsync("x", x, 0)), one(hvd.ReduceAsync("x", x, 0)), one(hvd.AllgatherAsync("x", x)),
		one(hvd.GroupedAllgather(ctx, "x", [][]float32{x})),
		hvd.Send(ctx, 0, 1, x), one(hvd.Recv(ctx, 0, 1, x)),
		hvd.AddProcessSet(set), hvd.RemoveProcessSet(set), hvd.StartTimeline("/nowhere", false), hvd.StopTimeline(),
	} {
		if !errors.Is(err, hvd.ErrNotInitialized) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestInitAgainAndAgain(t *testing.T) {
	for range 3 {
		if err := hvd.Init(); err != nil {
			t.Fatal(err)
		}
		x := []float32{2}
		if err := hvd.Allreduce(context.Background(), "x", x); err != nil || x[0] != 2 {
			t.Error(x, err)
		}
		if err := hvd.AddProcessSet(hvd.NewProcessSet(0)); !errors.Is(err, hvd.ErrSetsAreFixed) {
			t.Error(err)
		}
		if err := hvd.StartTimeline(t.TempDir()+"/t", false); !errors.Is(err, hvd.ErrTimelineNotEnabled) {
			t.Error(err)
		}
		hvd.Shutdown()
	}
}
