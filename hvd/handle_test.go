package hvd_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gorovod/gorovod/hvd"
)

// alone makes this process a job of one until the test ends.
func alone(tb testing.TB) {
	tb.Helper()
	if err := hvd.Init(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(hvd.Shutdown)
}

func wait(h *hvd.Handle, err error) error {
	if err != nil {
		return err
	}
	return h.Wait(context.Background())
}

func TestWithHandle(t *testing.T) {
	alone(t)
	data, h := []float32{1}, new(hvd.Handle)
	if !h.Done() || h.Wait(context.Background()) == nil {
		t.Error("a new handle is not a spent one")
	}
	for _, name := range []string{"x", "y", "x"} {
		got, err := hvd.AllreduceAsync(name, data, hvd.WithHandle(h))
		if err != nil || got != h {
			t.Fatalf("%p for %p, %v", got, h, err)
		}
		if _, err := hvd.AllreduceAsync("z", data, hvd.WithHandle(h)); !errors.Is(err, hvd.ErrInvalidArgument) {
			t.Errorf("a handle in use: %v", err)
		}
		if err := wait(h, nil); err != nil {
			t.Fatal(err)
		}
	}
	refused := map[string]error{}
	refused["allreduce"] = hvd.Allreduce(context.Background(), "x", data, hvd.WithHandle(h))
	_, refused["allgather"] = hvd.AllgatherAsync("g", data, hvd.WithHandle(h))
	_, refused["group"] = hvd.GroupedAllreduceAsync("g", [][]float32{data}, hvd.WithHandle(h))
	for name, err := range refused {
		if !errors.Is(err, hvd.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := wait(hvd.AllreduceAsync("x", data)); err != nil || !h.Done() {
		t.Errorf("after that: %v", err)
	}
}
