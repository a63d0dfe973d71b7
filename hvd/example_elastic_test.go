package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"github.com/gorovod/gorovod/hvd"
)

// state is what must not be lost: the step of the training, and its weights.
type state struct {
	Step      int64
	Weights   []float32
	committed *state
}

// Save remembers a copy, so that the training does not change it.
func (s *state) Save() { s.committed = &state{Step: s.Step, Weights: slices.Clone(s.Weights)} }

// Restore copies the committed state, because it may be needed again.
func (s *state) Restore() { s.Step, s.Weights = s.committed.Step, slices.Clone(s.committed.Weights) }

// Sync takes the state of rank 0, and saves it.
func (s *state) Sync(ctx context.Context) error {
	step := []int64{s.Step}
	if err := hvd.Broadcast(ctx, "step", step, 0); err != nil {
		return err
	}
	s.Step = step[0]
	if err := hvd.Broadcast(ctx, "weights", s.Weights, 0); err != nil {
		return err
	}
	s.Save()
	return nil
}

// A job that goes on when processes die or come: horovodrun -np 4 --min-np 2 ./program.
func ExampleRunElastic() {
	if err := hvd.Init(); err != nil {
		log.Fatal(err)
	}
	defer hvd.Shutdown()

	s := &state{Weights: make([]float32, 3)}
	s.Save()
	err := hvd.RunElastic(context.Background(), s, func(ctx context.Context, e *hvd.Elastic) error {
		for s.Step < 100 {
			grad := []float32{1, 2, 3} // of this process's part of the data
			if err := hvd.Allreduce(ctx, "grad", grad); err != nil {
				return err // for example, a process has died: train is called again, with the last commit
			}
			for i := range s.Weights {
				s.Weights[i] += grad[i] / 100
			}
			if s.Step++; s.Step%10 == 0 {
				if err := e.Commit(ctx); err != nil {
					return err // for example, the hosts have changed: train is called again, and nothing is lost
				}
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, hvd.ErrDismissed): // this process is not needed any more
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Printf("%.1f after %d steps\n", s.Weights, s.Step)
	}
	// Output: [1.0 2.0 3.0] after 100 steps
}
