// Command worker is a worker of the chaos tests. It writes a journal, which the test
// checks: each commit, and the commit from which each world went on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

var (
	steps   = flag.Int64("steps", 1<<40, "steps to make at most")
	until   = flag.String("until", "", "file whose presence ends the training, at a commit")
	every   = flag.Int64("commit-every", 5, "steps between two commits")
	pause   = flag.Duration("pause", time.Millisecond, "what a step takes besides")
	journal = flag.String("journal", "", "directory for journals")
)

// evens is a process set. Which of its ranks exist differs from world to world.
var evens = hvd.NewProcessSet(0, 2, 4, 6)

func main() {
	flag.Parse()
	work := run
	if flag.Arg(0) == "reference" {
		work = reference
	}
	if err := work(context.Background()); err != nil {
		if errors.Is(err, hvd.ErrDismissed) {
			fmt.Println(err)
			return
		}
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// reference trains alone. It prints the hash after each commit, and the accuracy at the end.
func reference(context.Context) error {
	m, err := newModel()
	if err != nil {
		return err
	}
	for m.step < *steps {
		m.advance(0, 1, func([]int64) error { return nil })
		if m.step%*every == 0 {
			fmt.Printf("%d %016x\n", m.step/(*every)-1, m.hash())
		}
	}
	fmt.Printf("accuracy %.4f\n", m.accuracy())
	return nil
}

// phaseVariable names a file with one byte, the phase of this worker: 's' in a step, 'c' in a commit, 'r' between two
// worlds.
const phaseVariable = "GOROVOD_CHAOS_PHASE"

// phases is that file; nil without the variable.
var phases *os.File

func enter(phase string) {
	if phases != nil {
		phases.WriteAt([]byte(phase), 0)
	}
}

func run(ctx context.Context) error {
	if name := os.Getenv(phaseVariable); name != "" {
		var err error
		if phases, err = os.Create(name); err != nil {
			return err
		}
	}
	enter("r")
	if err := hvd.Init(evens); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(*journal, fmt.Sprintf("%s.%d", os.Getenv("GOROVOD_ELASTIC_WORKER"),
		os.Getpid())))
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "host %s\n", os.Getenv("HOROVOD_HOSTNAME"))
	m, err := newModel()
	if err != nil {
		return err
	}
	err = hvd.RunElastic(ctx, m, func(ctx context.Context, e *hvd.Elastic) error {
		fmt.Fprintf(log, "from %d commit %d rank %d of %d at %d\n", m.step, e.Commits(), hvd.Rank(), hvd.Size(),
			time.Now().UnixMicro())
		defer enter("r")
		return train(ctx, e, m, log)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "done %d %016x %.4f\n", m.step, m.hash(), m.accuracy())
	if hvd.Rank() == 0 {
		fmt.Printf("done: %d steps, %016x, accuracy %.4f\n", m.step, m.hash(), m.accuracy())
	}
	hvd.Shutdown()
	return nil
}

func train(ctx context.Context, e *hvd.Elastic, m *model, log *os.File) error {
	if err := hvd.AddProcessSet(evens); err != nil {
		return err
	}
	for first := true; m.step < *steps; first = false {
		enter("s")
		err := m.advance(hvd.Rank(), hvd.Size(), func(grad []int64) error {
			return hvd.Allreduce(ctx, "grad", grad, hvd.WithOp(hvd.Sum))
		})
		if err != nil {
			return err
		}
		if first {
			fmt.Fprintf(log, "step %d at %d\n", m.step, time.Now().UnixMicro())
		}
		time.Sleep(*pause)
		if m.step%*every != 0 {
			continue
		}
		if err := count(ctx); err != nil {
			return err
		}
		enough, err := agree(ctx, m)
		if err != nil {
			return err
		}
		// Write this before Commit, because Commit also holds the state if it returns that the hosts have changed.
		fmt.Fprintf(log, "commit %d %016x at %d\n", e.Commits()+1, m.hash(), time.Now().UnixMicro())
		enter("c")
		err = e.Commit(ctx)
		if err == nil || errors.Is(err, hvd.ErrHostsUpdated) {
			fmt.Fprintf(log, "held %d at %d\n", e.Commits(), time.Now().UnixMicro())
		}
		if err != nil {
			return err
		}
		if enough {
			return nil
		}
	}
	return nil
}

// count has every second rank count itself.
func count(ctx context.Context) error {
	if !evens.Included() {
		return nil
	}
	n := []int64{1}
	if err := hvd.Allreduce(ctx, "evens", n, hvd.WithOp(hvd.Sum), hvd.WithProcessSet(evens)); err != nil {
		return err
	}
	if int(n[0]) != evens.Size() || evens.Size() != (min(hvd.Size(), 8)+1)/2 {
		fmt.Printf("VIOLATION: %d members of %v have come, in a world of %d\n", n[0], evens.Ranks(), hvd.Size())
		os.Exit(3)
	}
	return nil
}

// agree checks that all ranks hold the same state, and asks rank 0 whether the training is to end.
func agree(ctx context.Context, m *model) (enough bool, err error) {
	mine := []int64{int64(m.hash()), 0}
	if _, err := os.Stat(*until); err == nil {
		mine[1] = 1
	}
	all, err := hvd.Allgather(ctx, "hashes", mine)
	if err != nil {
		return false, err
	}
	for rank := range len(all) / 2 {
		if h := all[2*rank]; h != all[0] {
			fmt.Printf("VIOLATION: at step %d rank %d has %016x, rank 0 %016x\n", m.step, rank, uint64(h),
				uint64(all[0]))
			os.Exit(3)
		}
	}
	return all[1] == 1, nil
}
