// Command rank is one rank of the jobs that the fault tests run. It computes until
// something fails, and prints the error, or that it has ended without one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// rounds is the number of rounds in a job without a fault.
const rounds = 30

func main() {
	if os.Getenv("FAULT_RANK") != os.Getenv("HOROVOD_RANK") {
		os.Unsetenv("GOROVOD_FAILPOINT")
	}
	if err := work(); err != nil {
		text := err.Error()
		if failure := new(engine.Error); errors.As(err, &failure) {
			text = failure.Error() // it is the same on all ranks, whichever operation failed there
		}
		fmt.Printf("TOLD %d %s\n", time.Now().UnixNano(), strings.ReplaceAll(text, "\n", " | "))
		time.Sleep(time.Minute) // so that no other rank notices this end
	}
	fmt.Println("DONE")
}

func work() error {
	if err := hvd.Init(); err != nil {
		return err
	}
	ctx := context.Background()
	if os.Getenv("FAULT_RANK") == os.Getenv("HOROVOD_RANK") {
		defer befall(os.Getenv("FAULT"))()
	}
	large := make([]float32, 4<<20)
	ok := true
	var small [8][]float32
	for i := range small {
		small[i] = make([]float32, 1000)
	}
	last := rounds
	if n, err := strconv.Atoi(os.Getenv("FAULT_ROUNDS")); err == nil {
		last = n
	}
	for round := range last {
		if round == 2 && last != rounds {
			fmt.Println("WORKING")
		}
		sample(large, func(i int) { large[i] = float32(round*hvd.Size() + hvd.Rank()*(1+i%3)) })
		if err := hvd.Allreduce(ctx, "large", large, hvd.WithOp(hvd.Sum)); err != nil {
			return err
		}
		n := hvd.Size()
		sample(large, func(i int) { ok = ok && large[i] == float32(round*n*n+(1+i%3)*n*(n-1)/2) })
		var handles []*hvd.Handle
		for i, s := range small { // these fuse
			// An Adasum is packed over every transport. A sum is not, if all ranks share the tensors' memory.
			op := []hvd.ReduceOp{hvd.Sum, hvd.Adasum}[i/4]
			h, err := hvd.AllreduceAsync(fmt.Sprint("small", i), s, hvd.WithOp(op), hvd.WithPrescale(0.5))
			if err != nil {
				return err
			}
			handles = append(handles, h)
		}
		for _, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return err
			}
		}
		tiny := []float32{float32(round), float32(hvd.Rank())}
		// Between hosts this data travels ahead.
		if err := hvd.Allreduce(ctx, "tiny", tiny, hvd.WithOp(hvd.Sum)); err != nil {
			return err
		}
		ok = ok && tiny[0] == float32(n*round) && tiny[1] == float32(n*(n-1)/2)
		sample(large, func(i int) { large[i] = float32(i%1000 + round + hvd.Rank()) })
		if err := hvd.Broadcast(ctx, "state", large, 0); err != nil {
			return err
		}
		sample(large, func(i int) { ok = ok && large[i] == float32(i%1000+round) })
		if round%5 == 2 {
			s := hvd.NewProcessSet(0, 1, 2)
			if err := hvd.AddProcessSet(s); err != nil {
				return err
			}
			if err := hvd.RemoveProcessSet(s); err != nil {
				return err
			}
		}
	}
	hvd.Shutdown()
	if !ok {
		fmt.Println("WRONG")
	}
	return nil
}

// sample calls f for indices all over p, some in each chunk that travels by itself.
func sample(p []float32, f func(i int)) {
	for i := 0; i < len(p); i += 1021 {
		f(i)
	}
}
