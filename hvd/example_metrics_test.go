package hvd_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorovod/gorovod/hvd"
)

// The counts are those of this process alone.
func ExampleMetrics() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()
	for range 3 {
		if err := hvd.Allreduce(context.Background(), "gradient", make([]float32, 1000)); err != nil {
			log.Fatal(err)
		}
	}
	m, err := hvd.Metrics()
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range m.Collectives {
		fmt.Println(c.Times.Count, c.Op, "of up to", c.SizeClass)
	}
	for _, t := range m.Tensors {
		fmt.Println(t.Count, t.DType, "in process set", t.Set)
	}
	// Output:
	// 3 allreduce of up to 32KiB
	// 3 float32 in process set 0
}

// Count what a step has worked through, and gorovod top shows samples a second.
func ExampleCountSamples() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()
	const batch = 64
	for range 3 {
		if err := hvd.CountSamples(batch); err != nil {
			log.Fatal(err)
		}
	}
	m, err := hvd.Metrics()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Samples, "samples")
	// Output: 192 samples
}

// The last bucket has all longer durations.
func ExampleHistogram_Bound() {
	h := hvd.Histogram{Buckets: []uint64{5, 2, 1}, Count: 8}
	for i, n := range h.Buckets {
		fmt.Println(n, "took at most", h.Bound(i))
	}
	// Output:
	// 5 took at most 1µs
	// 2 took at most 2µs
	// 1 took at most 4µs
}
