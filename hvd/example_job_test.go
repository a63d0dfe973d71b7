package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// A program that is started alone is a job of one process.
func ExampleInit() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	fmt.Println("rank", hvd.Rank(), "of", hvd.Size())
	// Output: rank 0 of 1
}

// The other processes have ten seconds to come.
func ExampleInitContext() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := hvd.InitContext(ctx); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	fmt.Println(hvd.IsInitialized())
	// Output: true
}

// One process reports for all.
func ExampleRank() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	if hvd.Rank() == 0 {
		fmt.Println(hvd.Size(), "process;", hvd.LocalSize(), "here, on", hvd.CrossSize(), "host")
	}
	// Output: 1 process; 1 here, on 1 host
}

// The even ranks of a job of four processes, and the odd ones. Only the members of a set call its operations.
func ExampleNewProcessSet() {
	even, odd := hvd.NewProcessSet(0, 2), hvd.NewProcessSet(1, 3)
	if err := hvd.Init(even, odd); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	mine := even
	if odd.Included() {
		mine = odd
	}
	x := []float32{float32(hvd.Rank())}
	if err := hvd.Allreduce(context.Background(), "x", x, hvd.WithProcessSet(mine)); err != nil {
		log.Fatal(err)
	}
	if err := hvd.Barrier(context.Background()); err != nil { // a Shutdown would end the others' operations
		log.Fatal(err)
	}
	fmt.Println(mine.Ranks(), x) // [0 2] [1] or [1 3] [2]
}

// Sets can be added later where HOROVOD_DYNAMIC_PROCESS_SETS=1 is set before Init.
func ExampleAddProcessSet() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	err := hvd.AddProcessSet(hvd.NewProcessSet(0))
	fmt.Println(errors.Is(err, hvd.ErrSetsAreFixed))
	// Output: true
}

// A set that is not registered cannot be removed.
func ExampleRemoveProcessSet() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	err := hvd.RemoveProcessSet(hvd.NewProcessSet(0))
	fmt.Println(errors.Is(err, hvd.ErrUnknownSet))
	// Output: true
}

// HOROVOD_TIMELINE=DYNAMIC enables timelines without starting one.
func ExampleStartTimeline() {
	dir, err := os.MkdirTemp("", "timeline")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("HOROVOD_TIMELINE", "DYNAMIC")
	defer os.Unsetenv("HOROVOD_TIMELINE")
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	path := filepath.Join(dir, "step.json")
	if err := hvd.StartTimeline(path, false); err != nil {
		log.Fatal(err)
	}
	if err := hvd.Barrier(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := hvd.StopTimeline(); err != nil {
		log.Fatal(err)
	}
	written, err := os.Stat(path)
	fmt.Println(err == nil && written.Size() > 0)
	// Output: true
}

// Without a timeline there is nothing to stop, but they have to be enabled.
func ExampleStopTimeline() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	fmt.Println(errors.Is(hvd.StopTimeline(), hvd.ErrTimelineNotEnabled))
	// Output: true
}
