// Command straggler is a job for tests of the dashboard: steps of a few allreduces, in which one rank is late. Its
// arguments are the rank, how late it is in each step, and how long the job runs. With a fourth argument the rank
// computes in that time; otherwise it sleeps.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	late, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	delay, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return err
	}
	length, err := time.ParseDuration(os.Args[3])
	if err != nil {
		return err
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	ctx, end := context.Background(), time.Now().Add(length)
	small, large := make([]float32, 1000), make([]float32, 1<<20)
	on := []float32{1}
	for step := 0; on[0] > 0; step++ {
		if hvd.Rank() == late {
			for until := time.Now().Add(delay); time.Now().Before(until); {
				if len(os.Args) < 5 {
					time.Sleep(time.Until(until))
				}
			}
		}
		if step%10 == 0 {
			fmt.Printf("step %d of rank %d <b>bold</b>\n", step, hvd.Rank())
		}
		time.Sleep(10 * time.Millisecond)
		if err := hvd.Allreduce(ctx, "layer4.conv2.weight", small); err != nil {
			return err
		}
		if err := hvd.Allreduce(ctx, "layer3.conv1.weight<script>alert(1)</script>", large); err != nil {
			return err
		}
		on[0] = 1
		if time.Now().After(end) {
			on[0] = 0
		}
		if err := hvd.Allreduce(ctx, "go on", on, hvd.WithOp(hvd.Min)); err != nil {
			return err
		}
	}
	return nil
}
