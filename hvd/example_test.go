package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// Each process computes on its own part of the data; the average of the
// gradients is the gradient of all of it.
func Example() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	grad := []float32{0.5, -1}
	if err := hvd.Allreduce(context.Background(), "grad", grad); err != nil {
		log.Fatal(err)
	}
	if hvd.Rank() == 0 {
		fmt.Println(hvd.Size(), grad)
	}
	// Output: 1 [0.5 -1]
}

// Communication and computation overlap.
func ExampleAllreduceAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	layers := [][]float32{{1, 2}, {3}}
	var handles []*hvd.Handle
	for i, grad := range layers {
		h, err := hvd.AllreduceAsync(fmt.Sprint("layer.", i), grad, hvd.WithOp(hvd.Sum))
		if err != nil {
			log.Fatal(err)
		}
		handles = append(handles, h)
		// … compute the gradient of the next layer …
	}
	for _, h := range handles {
		if err := h.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(layers)
	// Output: [[1 2] [3]]
}

// Processes may have different amounts of data.
func ExampleAllgather() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	mine := []int32{7, 8, 9}
	all, err := hvd.Allgather(context.Background(), "rows", mine)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(all)
	// Output: [7 8 9]
}

// An operation that makes a new slice delivers it when it is waited for.
func ExampleAllgatherAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	weights := []hvd.Float16{hvd.NewFloat16(0.5), hvd.NewFloat16(-3)}
	h, err := hvd.AllgatherAsync("weights", weights)
	if err != nil {
		log.Fatal(err)
	}
	// … do something else …
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := h.Wait(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		log.Fatal("some process is late: Wait may be called again")
	case errors.Is(err, hvd.ErrInternal):
		log.Fatal("the job has failed: ", err)
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(all)
	// Output: [0.5 -3]
}
