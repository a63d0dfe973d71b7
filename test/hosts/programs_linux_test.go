package hosts

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// programs are the programs of the ranks.
var programs = map[string]func() int{
	// collectives runs each collective on sizes below and above the fusion's and
	// the chunks', and checks every element.
	"collectives": func() int {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		defer cancel()
		if err := hvd.InitContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer hvd.Shutdown()
		if err := collectives(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("all is right on rank %d of %d, %d of %d here\n", hvd.Rank(), hvd.Size(), hvd.LocalRank(),
			hvd.LocalSize())
		return 0
	},
	// absent runs on an mpirun's ranks. The ranks in ABSENT never join; mpirun has to end them, which Hydra may not do.
	// The other ranks begin together: they leave files in PRESENT, and wait for one another.
	"absent": func() int {
		absent := strings.Split(os.Getenv("ABSENT"), ",")
		rank := cmp.Or(os.Getenv("OMPI_COMM_WORLD_RANK"), os.Getenv("PMI_RANK"))
		if slices.Contains(absent, rank) {
			time.Sleep(20 * time.Second)
			return 0
		}
		if err := os.WriteFile(filepath.Join(os.Getenv("PRESENT"), rank), nil, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		for there := 0; there < 4-len(absent); time.Sleep(time.Millisecond) {
			names, _ := filepath.Glob(filepath.Join(os.Getenv("PRESENT"), "*"))
			there = len(names)
		}
		err := hvd.Init()
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(time.Second) // so that the other ranks print it, too, before mpirun ends them
		return 1
	},
	// loop reduces until an error, at most for a minute.
	"loop": func() int {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := hvd.InitContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		for i := 0; ; i++ {
			x := []float32{1}
			if err := hvd.Allreduce(ctx, "x", x); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 3
			}
			if i == 10 {
				fmt.Println("looping")
			}
			time.Sleep(time.Millisecond)
		}
	},
	// teller reduces large tensors until an error, at most for two minutes. It writes its process id and later the
	// error to files, because launchers that fail lose output.
	"teller": func() int {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := hvd.InitContext(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		write := func(what string, text any) {
			at := filepath.Join(os.Getenv("TOLD"), fmt.Sprint(what, hvd.Rank()))
			if err := os.WriteFile(at+".part", []byte(fmt.Sprint(text)), 0o600); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			os.Rename(at+".part", at)
		}
		x := make([]float32, 1<<20)
		for i := 0; ; i++ {
			if err := hvd.Allreduce(ctx, "x", x); err != nil {
				write("told", err)
				return 3
			}
			if i == 10 {
				write("pid", os.Getpid())
			}
		}
	},
}

func collectives(ctx context.Context) error {
	rank, size := hvd.Rank(), hvd.Size()
	for _, n := range []int{1, 1000, 300_000} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rank*7 + i%97)
		}
		sum := slices.Clone(x)
		if err := hvd.Allreduce(ctx, fmt.Sprint("sum", n), sum, hvd.WithOp(hvd.Sum)); err != nil {
			return err
		}
		for i, got := range sum {
			if want := float32(7*size*(size-1)/2 + size*(i%97)); got != want {
				return fmt.Errorf("allreduce of %d: element %d is %v, want %v", n, i, got, want)
			}
		}
		all, err := hvd.Allgather(ctx, fmt.Sprint("gather", n), x)
		if err != nil {
			return err
		}
		for i, got := range all {
			if want := float32(i/n*7 + i%n%97); got != want {
				return fmt.Errorf("allgather of %d: element %d is %v, want %v", n, i, got, want)
			}
		}
		if err := hvd.Broadcast(ctx, fmt.Sprint("broadcast", n), x, size-1); err != nil {
			return err
		}
		for i, got := range x {
			if want := float32((size-1)*7 + i%97); got != want {
				return fmt.Errorf("broadcast of %d: element %d is %v, want %v", n, i, got, want)
			}
		}
		blocks := make([]float32, size*n)
		for i := range blocks {
			blocks[i] = float32(rank*100 + i/n)
		}
		swapped, _, err := hvd.Alltoall(ctx, fmt.Sprint("alltoall", n), blocks, nil)
		if err != nil {
			return err
		}
		for i, got := range swapped {
			if want := float32(i/n*100 + rank); got != want {
				return fmt.Errorf("alltoall of %d: element %d is %v, want %v", n, i, got, want)
			}
		}
		part, err := hvd.Reducescatter(ctx, fmt.Sprint("scatter", n), blocks, hvd.WithOp(hvd.Sum))
		if err != nil {
			return err
		}
		if len(part) != n {
			return fmt.Errorf("reducescatter of %d: %d elements", n, len(part))
		}
		for i, got := range part {
			if want := float32(100*size*(size-1)/2 + rank*size); got != want {
				return fmt.Errorf("reducescatter of %d: element %d is %v, want %v", n, i, got, want)
			}
		}
	}
	return hvd.Barrier(ctx)
}
