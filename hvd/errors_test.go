package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// attempts calls every operation once. The keys are the words with which its error must begin.
func attempts(ctx context.Context) map[string]error {
	x := []float32{1}
	errs := map[string]error{
		`allreduce "all"`:  hvd.Allreduce(ctx, "all", x),
		`broadcast "cast"`: hvd.Broadcast(ctx, "cast", x, 0),
		`allreduce "many"`: hvd.GroupedAllreduce(ctx, "many", [][]float32{x, x}),
		"barrier: ":        hvd.Barrier(ctx),
	}
	_, errs[`allgather "gather"`] = hvd.Allgather(ctx, "gather", x)
	_, errs[`reducescatter "scatter"`] = hvd.Reducescatter(ctx, "scatter", x)
	_, errs[`reducescatter "scatters"`] = hvd.GroupedReducescatter(ctx, "scatters", [][]float32{x})
	_, _, errs[`alltoall "to all"`] = hvd.Alltoall(ctx, "to all", x, nil)
	_, errs["join: "] = hvd.Join(ctx)
	return errs
}

// Errors name their operation, and this package's functions instead of Python's.
func TestErrorsNameTheOperation(t *testing.T) {
	check := func(when string, errs map[string]error, is error) {
		for what, err := range errs {
			if !errors.Is(err, is) || !strings.HasPrefix(err.Error(), what) || strings.Contains(err.Error(), "init()") {
				t.Errorf("%s: %v, want %s", when, err, what)
			}
		}
	}
	check("before Init", attempts(context.Background()), hvd.ErrNotInitialized)
	for what, err := range map[string]error{"AddProcessSet": hvd.AddProcessSet(hvd.NewProcessSet(0)),
		"StartTimeline": hvd.StartTimeline("x", false), "Send": hvd.Send(context.Background(), 0, 1, []byte{1})} {
		if !errors.Is(err, hvd.ErrNotInitialized) || !strings.HasSuffix(err.Error(), "call hvd.Init() first") {
			t.Errorf("%s before Init: %v", what, err)
		}
	}
	if err := hvd.Init(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	check("after the end of its context", attempts(ctx), context.Canceled)
	err := hvd.AddProcessSet(hvd.NewProcessSet(0))
	if !errors.Is(err, hvd.ErrSetsAreFixed) || !strings.Contains(err.Error(), "before hvd.Init()") {
		t.Errorf("%v", err)
	}
	if _, err := hvd.Allgather(context.Background(), "set", []byte{1},
		hvd.WithProcessSet(hvd.NewProcessSet(0))); !errors.Is(err, hvd.ErrUnknownSet) || !strings.HasPrefix(err.Error(),
		`allgather "set": `) {
		t.Errorf("%v", err)
	}
	if err := hvd.Broadcast(context.Background(), "root", []byte{1}, 7); strings.Count(err.Error(), "root\"") != 1 {
		t.Errorf("named twice, or not: %v", err)
	}
	hvd.Shutdown()
	check("after Shutdown", attempts(context.Background()), hvd.ErrNotInitialized)
	t.Setenv("HOROVOD_RANK", "0")
	t.Setenv("HOROVOD_SIZE", "2")
	t.Setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
	t.Setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "1")
	t.Setenv("HOROVOD_SECRET_KEY", fmt.Sprintf("%032x", 1))
	t.Setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "1")
	ctx, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := hvd.InitContext(ctx); err == nil || strings.Contains(err.Error(), "hvd.init()") {
		t.Errorf("%v", err)
	}
}
