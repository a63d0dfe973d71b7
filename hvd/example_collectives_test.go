package hvd_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorovod/gorovod/hvd"
)

// By default the elements are averaged over all processes.
func ExampleAllreduce() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	loss := []float64{0.25}
	if err := hvd.Allreduce(context.Background(), "loss", loss); err != nil {
		log.Fatal(err)
	}
	fmt.Println(loss[0])
	// Output: 0.25
}

// All processes begin with the parameters of rank 0.
func ExampleBroadcast() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	weights := make([]float32, 3)
	if hvd.Rank() == 0 {
		copy(weights, []float32{1, 2, 3}) // read from a file, say
	}
	if err := hvd.Broadcast(context.Background(), "weights", weights, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(weights)
	// Output: [1 2 3]
}

// Several tensors are under way at a time.
func ExampleBroadcastAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	layers := [][]float32{{1, 2}, {3}}
	var handles []*hvd.Handle
	for i, weights := range layers {
		h, err := hvd.BroadcastAsync(fmt.Sprint("layer.", i), weights, 0)
		if err != nil {
			log.Fatal(err)
		}
		handles = append(handles, h)
	}
	for _, h := range handles {
		if err := h.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(layers)
	// Output: [[1 2] [3]]
}

// Only rank 0 gets the sum; on the others the slice stays as it is.
func ExampleReduce() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	counts := []int64{10, 20}
	if err := hvd.Reduce(context.Background(), "counts", counts, 0, hvd.WithOp(hvd.Sum)); err != nil {
		log.Fatal(err)
	}
	if hvd.Rank() == 0 {
		fmt.Println(counts)
	}
	// Output: [10 20]
}

// The process goes on while the sum is made.
func ExampleReduceAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	counts := []int64{10, 20}
	h, err := hvd.ReduceAsync("counts", counts, 0, hvd.WithOp(hvd.Sum))
	if err != nil {
		log.Fatal(err)
	}
	// … other work; counts must be left alone …
	if err := h.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	if hvd.Rank() == 0 {
		fmt.Println(counts)
	}
	// Output: [10 20]
}

// Each process sends two elements to each process.
func ExampleAlltoall() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	mine := make([]int32, 2*hvd.Size())
	for i := range mine {
		mine[i] = int32(i)
	}
	got, received, err := hvd.Alltoall(context.Background(), "rows", mine, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got, received)
	// Output: [0 1] [2]
}

// Splits say how many elements each process gets; the rest of the data stays here.
func ExampleAlltoallAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	mine, splits := []int32{7, 8, 9}, make([]int, hvd.Size())
	splits[0] = 2 // all to rank 0
	h, err := hvd.AlltoallAsync("rows", mine, splits)
	if err != nil {
		log.Fatal(err)
	}
	got, err := h.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got, h.ReceivedSplits())
	// Output: [7 8] [2]
}

// Each process gets its part of the sum.
func ExampleReducescatter() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	part, err := hvd.Reducescatter(context.Background(), "grad", []float32{1, 2, 3}, hvd.WithOp(hvd.Sum))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(part)
	// Output: [1 2 3]
}

// The result is a new slice, which Wait returns.
func ExampleReducescatterAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	h, err := hvd.ReducescatterAsync("grad", []float32{1, 2, 3}, hvd.WithOp(hvd.Sum))
	if err != nil {
		log.Fatal(err)
	}
	part, err := h.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(part)
	// Output: [1 2 3]
}

// Nobody goes on before all have come.
func ExampleBarrier() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	if hvd.Rank() == 0 {
		// … prepare the data for all …
	}
	if err := hvd.Barrier(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all are here")
	// Output: all are here
}

// Processes may have different amounts of data: a process without further data joins, and the others go on.
func ExampleJoin() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	batches := 3 // on this process
	for i := range batches {
		grad := []float32{1, 2}
		if err := hvd.Allreduce(context.Background(), "grad", grad); err != nil {
			log.Fatal(i, err)
		}
	}
	last, err := hvd.Join(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("rank", last, "had the most data")
	// Output: rank 0 had the most data
}

// All layers are reduced together.
func ExampleGroupedAllreduce() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	layers := [][]float32{{1, 2}, {3}}
	if err := hvd.GroupedAllreduce(context.Background(), "grads", layers); err != nil {
		log.Fatal(err)
	}
	fmt.Println(layers)
	// Output: [[1 2] [3]]
}

// There is a handle for each slice.
func ExampleGroupedAllreduceAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	layers := [][]float32{{1, 2}, {3}}
	handles, err := hvd.GroupedAllreduceAsync("grads", layers)
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range handles {
		if err := h.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(layers)
	// Output: [[1 2] [3]]
}

// Each slice is gathered by itself; the lengths may differ between processes.
func ExampleGroupedAllgather() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	all, err := hvd.GroupedAllgather(context.Background(), "rows", [][]int32{{1, 2}, {3}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(all)
	// Output: [[1 2] [3]]
}

// There is a handle for each slice.
func ExampleGroupedAllgatherAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	handles, err := hvd.GroupedAllgatherAsync("rows", [][]int32{{1, 2}, {3}})
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range handles {
		all, err := h.Wait(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(all)
	}
	// Output:
	// [1 2]
	// [3]
}

// Each process gets its part of each sum.
func ExampleGroupedReducescatter() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	parts, err := hvd.GroupedReducescatter(context.Background(), "grads", [][]float32{{1, 2}, {3}}, hvd.WithOp(hvd.Sum))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(parts)
	// Output: [[1 2] [3]]
}

// There is a handle for each slice.
func ExampleGroupedReducescatterAsync() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	handles, err := hvd.GroupedReducescatterAsync("grads", [][]float32{{1, 2}, {3}}, hvd.WithOp(hvd.Sum))
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range handles {
		part, err := h.Wait(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(part)
	}
	// Output:
	// [1 2]
	// [3]
}

// Messages go from one process to another, apart from the collectives.
func ExampleSend() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	next, previous := (hvd.Rank()+1)%hvd.Size(), (hvd.Rank()+hvd.Size()-1)%hvd.Size()
	const tag = 7
	if err := hvd.Send(context.Background(), next, tag, []float32{1, 2}); err != nil {
		log.Fatal(err)
	}
	got := make([]float32, 2)
	n, err := hvd.Recv(context.Background(), previous, tag, got)
	if err != nil {
		log.Fatal(err)
	}
	if err := hvd.Barrier(context.Background()); err != nil { // a Shutdown would end the others' operations
		log.Fatal(err)
	}
	fmt.Println(got[:n])
	// Output: [1 2]
}

// The slice may be longer than the message.
func ExampleRecv() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	if err := hvd.Send(context.Background(), hvd.Rank(), 1, []int64{42}); err != nil {
		log.Fatal(err)
	}
	got := make([]int64, 10)
	n, err := hvd.Recv(context.Background(), hvd.Rank(), 1, got)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, got[:n])
	// Output: 1 [42]
}
