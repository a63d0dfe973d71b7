package hvd_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorovod/gorovod/hvd"
)

// The greatest of each element over all processes.
func ExampleWithOp() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	x := []int32{4, -1}
	if err := hvd.Allreduce(context.Background(), "x", x, hvd.WithOp(hvd.Max)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x)
	// Output: [4 -1]
}

// A factor for the data of each process, and one for the result.
func ExampleWithPrescale() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	x := []float32{8}
	err := hvd.Allreduce(context.Background(), "x", x, hvd.WithOp(hvd.Sum), hvd.WithPrescale(0.5), hvd.WithPostscale(3))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x)
	// Output: [12]
}

// A sum is halved.
func ExampleWithPostscale() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	x := []float32{8}
	err := hvd.Allreduce(context.Background(), "x", x, hvd.WithOp(hvd.Sum), hvd.WithPostscale(0.5))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x)
	// Output: [4]
}

// Between hosts the gradient travels in 16 bits a number.
func ExampleWithCompression() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	grad := []float32{0.5, -1}
	if err := hvd.Allreduce(context.Background(), "grad", grad, hvd.WithCompression(hvd.BF16)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(grad)
	// Output: [0.5 -1]
}

// The sum over the first two ranks of a job of more.
func ExampleWithProcessSet() {
	pair := hvd.NewProcessSet(0, 1)
	if err := hvd.Init(pair); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	x := []float32{1}
	if pair.Included() {
		err := hvd.Allreduce(context.Background(), "x", x, hvd.WithOp(hvd.Sum), hvd.WithProcessSet(pair))
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := hvd.Barrier(context.Background()); err != nil { // a Shutdown would end the others' operations
		log.Fatal(err)
	}
	fmt.Println(x) // [2] on ranks 0 and 1
}

// A loop that keeps its handle and options allocates nothing.
func ExampleWithHandle() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	var h hvd.Handle
	options := []hvd.Option{hvd.WithHandle(&h)}
	grad := []float32{1, 2}
	for range 3 {
		if _, err := hvd.AllreduceAsync("grad", grad, options...); err != nil {
			log.Fatal(err)
		}
		if err := h.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(grad)
	// Output: [1 2]
}

// Halves are reduced as numbers.
func ExampleNewFloat16() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	x := []hvd.Float16{hvd.NewFloat16(0.5), hvd.NewFloat16(1e6)}
	if err := hvd.Allreduce(context.Background(), "x", x); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x, x[0].Float32())
	// Output: [0.5 +Inf] 0.5
}

// A BFloat16 has the range of a float32 and 8 bits of precision.
func ExampleNewBFloat16() {
	fmt.Println(hvd.NewBFloat16(1e6), hvd.NewBFloat16(1.001).Float32())
	// Output: 999424 1
}

// Done tells without waiting whether the result is there.
func ExampleHandle_Done() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	h, err := hvd.AllreduceAsync("x", []float32{1})
	if err != nil {
		log.Fatal(err)
	}
	for !h.Done() {
		// … something else …
	}
	fmt.Println(h.Wait(context.Background()))
	// Output: <nil>
}
