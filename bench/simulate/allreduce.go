package main

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
)

// collectives are the members' ends of the engine's own algorithms, over the lanes of a job.
type collectives struct {
	*job
	lanes []*collective.Lane
}

func (j *job) newCollectives() *collectives {
	c := &collectives{job: j}
	for _, l := range j.lanes {
		counted := *l
		counted.Comm = &meteredComm{l.Comm, j.meter}
		c.lanes = append(c.lanes, collective.NewLane(&counted, collective.Options{}))
	}
	return c
}

// allreduce sums tensors of that many bytes, with the algorithm that the model of package collective chooses for them.
// All members contribute zeros. So all of them can read one tensor and write into one, and a large job needs little
// memory.
func (c *collectives) allreduce(bytes int) error {
	in, out := make([]byte, bytes), make([]byte, bytes)
	ops := make([]collective.Op, len(c.lanes))
	for r, l := range c.lanes {
		ops[r] = l.Allreduce(tensor.Float32, tensor.Sum, in, out, 1)
	}
	for left := len(ops); left > 0; {
		moved := false
		for r, op := range ops {
			if op == nil {
				continue
			}
			before := c.lanes[r].Moved()
			done, err := op.Advance()
			if err != nil {
				return err
			}
			if done {
				ops[r] = nil
				left--
			}
			moved = moved || done || c.lanes[r].Moved() != before
		}
		if !moved {
			return fmt.Errorf("%+v: %d of %d ranks wait in an allreduce of %d bytes, and nothing moves",
				c.shape, left, len(ops), bytes)
		}
	}
	return nil
}

// simulateLarge returns what the data of an allreduce costs that travels after the agreement.
func simulateLarge(s shape, bytes int) (traffic, error) {
	j, err := newJob(s)
	if err != nil {
		return traffic{}, err
	}
	c := j.newCollectives()
	j.meter.start()
	if err := c.allreduce(bytes); err != nil {
		return traffic{}, err
	}
	return j.meter.stop(), nil
}

// simulateSmall returns what one allreduce of a tensor costs whose name has a card: the agreement and the data.
func simulateSmall(s shape, bytes int) (traffic, error) {
	s.tensors, s.cached = 1, true
	j, err := newJob(s)
	if err != nil {
		return traffic{}, err
	}
	c := j.newCollectives()
	if err := j.fill(); err != nil {
		return traffic{}, err
	}
	j.meter.start()
	if err := j.step(); err != nil {
		return traffic{}, err
	}
	if err := c.allreduce(bytes); err != nil {
		return traffic{}, err
	}
	return j.meter.stop(), nil
}
