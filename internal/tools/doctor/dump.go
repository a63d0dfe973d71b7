package doctor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/gorovod/gorovod/internal/observe/flight"
	"github.com/gorovod/gorovod/internal/observe/frtrace"
)

// Dump prints what the ranks of a job did last, and what each waits for. what is a process id of the job on this host,
// or a directory of dumps. If frTrace is not empty, Dump also writes the dumps into that folder, for PyTorch's
// analyser.
func Dump(w io.Writer, what, frTrace string) error {
	dumps, silent, err := find(what)
	if err != nil {
		return err
	}
	flight.Merge(w, dumps, silent)
	if frTrace == "" {
		return nil
	}
	missing, err := frtrace.Save(frTrace, dumps)
	if err != nil {
		return fmt.Errorf("--fr-trace %s: %w", frTrace, err)
	}
	option := ""
	if len(missing) > 0 {
		option = " --allow-incomplete-ranks"
	}
	_, err = fmt.Fprintf(w, "PyTorch's analyser reads this: torchfrtrace --prefix %s%s %s\n", frtrace.Prefix, option,
		frTrace)
	return err
}

// find asks a job for its dumps, or reads a directory.
func find(what string) (dumps []*flight.Dump, silent []flight.Silent, err error) {
	pid, err := strconv.Atoi(what)
	switch {
	case err == nil && (pid < 1 || strconv.Itoa(pid) != what):
		err = errors.New("it is no process id")
	case err == nil:
		dumps, silent, err = flight.Ask(pid)
	default:
		dumps, err = load(what)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--dump %s: %w", what, err)
	}
	if len(dumps) == 0 {
		return nil, nil, fmt.Errorf("--dump %s: there are no dumps", what)
	}
	return dumps, silent, nil
}

// load reads the dumps of a directory.
func load(dir string) ([]*flight.Dump, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("it is neither a process id nor a directory that exists")
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, errors.New("it is a file: a directory of dumps is needed, or a process id")
	}
	return flight.Load(dir)
}
