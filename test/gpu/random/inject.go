//go:build cgo && linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/joining/process"
)

// injectAll runs a job for each line of a file, with the faults of the line on rank 0. All jobs run in the same
// processes. Each job ends well, or with an error that says why, and leaves nothing behind.
func injectAll(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if err := inject(lines.Text()); err != nil {
			return fmt.Errorf("with the fault %s: %w", lines.Text(), err)
		}
	}
	return nil
}

// A call that hangs does so until a rank aborts the job. The last rank does that after patience. Then all ranks have to
// end soon.
const (
	patience       = time.Second
	injectionLimit = patience + 20*time.Second // on a loaded machine; a job whose fault nobody notices never ends
)

// inject runs one job.
func inject(fault string) error {
	began := time.Now()
	r, err := begin()
	if err == nil {
		err = r.gpu.prepare()
	}
	if err != nil {
		return err // no fault yet
	}
	me := process.World().Place.Rank
	if w := process.World(); me == w.Place.Size-1 {
		defer time.AfterFunc(patience, func() { w.Abort(fmt.Errorf("rank %d gives up", me)) }).Stop()
	}
	*during = fault
	err = r.run()
	met := faultsMet()
	if me == 0 {
		setFaults("")
	}
	if ended := r.end(); ended != nil {
		return fmt.Errorf("the end, after %w: %w", errors.Join(err), ended)
	}
	took := time.Since(began)
	outcome := "well"
	if err != nil {
		outcome = err.Error()
	}
	if me == 0 {
		fmt.Printf("%s: met %d, %v: %s\n", fault, met, took.Round(time.Millisecond), outcome)
	}
	switch {
	case took > injectionLimit:
		return fmt.Errorf("it took %v", took)
	case err != nil && me != 0 && !strings.Contains(outcome, "rank 0") && !strings.Contains(outcome, "gives up") &&
		!leftBefore(outcome):
		return fmt.Errorf("rank %d does not say what has happened: %w", me, err)
	}
	if !strings.Contains(fault, "Destroy") && !strings.Contains(fault, "Free") { // these leave something behind
		expectNothing()
	}
	return nil
}

// leftBefore reports whether a rank names another one that has left because rank 0 has refused an operation. With flag
// async, rank 0 waits for its device before it leaves, so the other one may be the first.
func leftBefore(outcome string) bool {
	return *async && strings.Contains(outcome, "The first to leave: rank 1 ")
}
