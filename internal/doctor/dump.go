package doctor

import (
	"fmt"
	"io"
	"strconv"

	"github.com/gorovod/gorovod/internal/flight"
)

// Dump prints what the ranks of a job have done last and what each waits for: what is a
// process id of the job on this host, or a directory of dumps.
func Dump(w io.Writer, what string) error {
	var dumps []*flight.Dump
	var silent []flight.Silent
	pid, err := strconv.Atoi(what)
	if err == nil {
		dumps, silent, err = flight.Ask(pid)
	} else {
		dumps, err = flight.Load(what)
	}
	if err != nil {
		return fmt.Errorf("--dump %s: %w", what, err)
	}
	if len(dumps) == 0 {
		return fmt.Errorf("--dump %s: there are no dumps", what)
	}
	flight.Merge(w, dumps, silent)
	return nil
}
