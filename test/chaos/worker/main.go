// Command worker is what the chaos test trains: a model of whole numbers, so that its
// state after each step is the same on however many ranks it was made, and whatever has
// happened meanwhile. It writes a journal of what it has committed and from where it
// went on, which the test checks.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

var (
	steps   = flag.Int64("steps", 1<<40, "steps to make at most")
	until   = flag.String("until", "", "file whose presence ends the training, at a commit")
	every   = flag.Int64("commit-every", 5, "steps between two commits")
	pause   = flag.Duration("pause", time.Millisecond, "what a step takes besides")
	width   = flag.Int("width", 4096, "numbers in the model")
	journal = flag.String("journal", "", "directory for journals")
)

// model is the state: what was trained, and how far.
type model struct {
	step   int64
	values []int64

	savedStep   int64
	savedValues []int64
}

func newModel(width int) *model {
	m := &model{values: make([]int64, width)}
	m.Save()
	return m
}

func (m *model) Save() { m.savedStep, m.savedValues = m.step, slices.Clone(m.values) }

func (m *model) Restore() { m.step, m.values = m.savedStep, slices.Clone(m.savedValues) }

func (m *model) Sync(ctx context.Context) error {
	all := append([]int64{m.step}, m.values...)
	if err := hvd.Broadcast(ctx, "state", all, 0); err != nil {
		return err
	}
	m.step, m.values = all[0], all[1:]
	m.Save()
	return nil
}

// MarshalBinary and UnmarshalBinary are for commits on a disk.
func (m *model) MarshalBinary() ([]byte, error) {
	return binary.Append(nil, binary.LittleEndian, append([]int64{m.step}, m.values...))
}

func (m *model) UnmarshalBinary(data []byte) error {
	all := make([]int64, len(data)/8)
	if _, err := binary.Decode(data, binary.LittleEndian, all); err != nil {
		return err
	}
	m.step, m.values = all[0], all[1:]
	return nil
}

func (m *model) hash() uint64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, m.step)
	binary.Write(h, binary.LittleEndian, m.values)
	return h.Sum64()
}

// samples are how many parts each step's work has, which the ranks share.
const samples = 24

// advance makes a step; sum adds up what all ranks have made of their parts.
func (m *model) advance(rank, size int, sum func([]int64) error) error {
	grad := make([]int64, len(m.values))
	for part := rank; part < samples; part += size {
		for i, v := range m.values {
			x := v ^ int64(part)<<20 ^ m.step*0x9e3779b1 ^ int64(i)
			grad[i] += x * x >> 3
		}
	}
	if err := sum(grad); err != nil {
		return err
	}
	for i := range m.values {
		m.values[i] = m.values[i]*31 + grad[i]
	}
	m.step++
	return nil
}

func main() {
	flag.Parse()
	if len(flag.Args()) > 0 && flag.Arg(0) == "reference" {
		reference()
		return
	}
	if err := run(context.Background()); err != nil {
		if errors.Is(err, hvd.ErrDismissed) {
			fmt.Println(err)
			return
		}
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// reference prints the hash after each commit of a run without others.
func reference() {
	m := newModel(*width)
	for m.step < *steps {
		m.advance(0, 1, func([]int64) error { return nil })
		if m.step%*every == 0 {
			fmt.Printf("%d %016x\n", m.step/(*every)-1, m.hash())
		}
	}
}

func run(ctx context.Context) error {
	if err := hvd.Init(); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(*journal, fmt.Sprintf("%s.%d", os.Getenv("GOROVOD_ELASTIC_WORKER"), os.Getpid())))
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "host %s\n", os.Getenv("HOROVOD_HOSTNAME"))
	m := newModel(*width)
	err = hvd.RunElastic(ctx, m, func(ctx context.Context, e *hvd.Elastic) error {
		fmt.Fprintf(log, "from %d commit %d rank %d of %d at %d\n", m.step, e.Commits(), hvd.Rank(), hvd.Size(), time.Now().UnixMicro())
		return train(ctx, e, m, log)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "done %d %016x\n", m.step, m.hash())
	if hvd.Rank() == 0 {
		fmt.Printf("done: %d steps, %016x\n", m.step, m.hash())
	}
	hvd.Shutdown()
	return nil
}

func train(ctx context.Context, e *hvd.Elastic, m *model, log *os.File) error {
	for first := true; m.step < *steps; first = false {
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
		enough, err := agree(ctx, m)
		if err != nil {
			return err
		}
		// Before, since what Commit returns may be that the hosts have changed: it holds the state then, too.
		fmt.Fprintf(log, "commit %d %016x\n", e.Commits()+1, m.hash())
		if err := e.Commit(ctx); err != nil {
			return err
		}
		if enough {
			return nil
		}
	}
	return nil
}

// agree checks that all ranks hold the same, and asks rank 0 whether it is enough.
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
			fmt.Printf("VIOLATION: at step %d rank %d has %016x, rank 0 %016x\n", m.step, rank, uint64(h), uint64(all[0]))
			os.Exit(3)
		}
	}
	return all[1] == 1, nil
}
