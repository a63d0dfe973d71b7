package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/interpreter"
)

// part is a part of the report about GPUs, as python/horovod/_gpu_report.py knows it. Each is a process of its own,
// because the libraries that it asks may hang or end their process.
type part struct {
	name  string
	about string // in an error
	limit time.Duration
}

// first is the part that tells whether the Python has this project's package.
const first = "python"

var parts = []part{
	{first, "", time.Minute},
	{"torch", "the part about PyTorch", 2 * time.Minute},
	{"jax", "the part about JAX", 2 * time.Minute},
	{"libraries", "the part about CUDA and NCCL", 2 * time.Minute},
	{"trial", "the trial", 5 * time.Minute},
}

// GPU prints which GPUs a process of a Python can use, each line as soon as it is known. This program cannot find out
// itself: it has no C, and not that Python's libraries.
func GPU(w io.Writer, python string, environ []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out := &passed{to: w}
	for _, p := range parts {
		err := (&interpreter.Program{Python: python, Args: []string{"-m", "horovod._gpu_report", p.name}, Env: environ,
			Limit: p.limit, Stdout: out}).Run(ctx)
		switch {
		case out.err != nil:
			return out.err
		case ctx.Err() != nil:
			out.end()
			return errors.New("interrupted")
		case p.name == first:
			if err := unfit(python, err, out); err != nil {
				return err
			}
		case err != nil:
			out.end()
			fmt.Fprintf(out, "WRONG: %s %v\n", p.about, err)
		}
	}
	return out.err
}

// unfit says why a Python cannot make the report, given how the first part has ended; nil if it can.
func unfit(python string, err error, out *passed) error {
	var died *interpreter.Died
	switch {
	case errors.Is(err, interpreter.ErrMissing):
		return fmt.Errorf("there is no Python called %s: --python PROGRAM names another one", python)
	case errors.As(err, &died):
		return fmt.Errorf("%s cannot say what it has: it %w: is gorovod's wheel installed there?", python, err)
	case err != nil:
		return fmt.Errorf("--python %s: %w", python, err)
	case !out.any:
		return fmt.Errorf("--python %s: it has answered nothing, so it is no Python", python)
	}
	return nil
}

// passed passes text on, and knows whether that has ended its last line.
type passed struct {
	to   io.Writer
	any  bool
	open bool
	err  error // the first failure; nothing is written after it
}

func (l *passed) Write(p []byte) (int, error) {
	if len(p) == 0 || l.err != nil {
		return len(p), l.err
	}
	l.any, l.open = true, p[len(p)-1] != '\n'
	var n int
	n, l.err = l.to.Write(p)
	return n, l.err
}

// end ends the line that has been begun.
func (l *passed) end() {
	if l.open {
		fmt.Fprintln(l)
	}
}
