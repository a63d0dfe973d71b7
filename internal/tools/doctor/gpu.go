package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/tools/interpreter"
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

// last is the part that ends with a line about how tensors travel, which begins with conclusion.
const (
	last       = "nccl"
	conclusion = "Tensors of GPUs: "
)

var parts = []part{
	{first, "the part about Python", time.Minute},
	{"torch", "the part about PyTorch", 2 * time.Minute},
	{"jax", "the part about JAX", 2 * time.Minute},
	{"cuda", "the part about CUDA", 2 * time.Minute},
	{last, "the part about NCCL", 2 * time.Minute},
	{"trial", "the trial", 5 * time.Minute},
}

// program runs a part. It ignores modules in the working directory, because a job's programs are elsewhere.
const program = `
import sys
sys.path[:] = [entry for entry in sys.path if entry]
from horovod import _gpu_report
_gpu_report.main(sys.argv[1])
sys.stderr.write("\n` + interpreter.EndLine + `\n")
sys.stderr.flush()
`

// GPU prints which GPUs a process of a Python can use, each line as soon as it is known. This program cannot find out
// itself: it has no C, and not that Python's libraries.
func GPU(w io.Writer, python string, environ []string) error {
	ctx, stop := interpreter.Interruptible()
	defer stop()
	out := &passed{to: w}
	for _, p := range parts {
		out.part, out.kept = 0, nil
		err := (&interpreter.Program{Python: python, Args: []string{"-c", program, p.name}, Env: environ,
			Limit: p.limit, Stdout: out}).Run(ctx)
		switch {
		case ctx.Err() != nil:
			out.say("")
			return errors.New("interrupted")
		case out.err != nil:
			return out.err
		case p.name == first:
			if err := unfit(python, err, out); err != nil {
				return err
			}
		case err != nil:
			out.say(fmt.Sprintf("WRONG: %s %v\n", p.about, err))
			if p.name == last && !bytes.Contains(out.kept, []byte(conclusion)) {
				out.say(conclusion + "not known, because of that\n")
			}
		}
		if out.part > mostOfPart {
			out.say(fmt.Sprintf("WRONG: %s has printed %d bytes, of which %d are here\n", p.about, out.part,
				mostOfPart))
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
	case errors.As(err, &died) && died.How == interpreter.Early && out.part == 0:
		return fmt.Errorf("--python %s: it has answered nothing, so it is no Python", python)
	case died != nil:
		return fmt.Errorf("%s cannot say what it has: it %w: is gorovod's wheel installed there?", python, err)
	case err != nil:
		return fmt.Errorf("--python %s: %w", python, err)
	}
	return nil
}

// passed passes a part's text on, and knows whether that has ended its last line.
type passed struct {
	to   io.Writer
	mu   sync.Mutex // held while the reader lets the writer wait
	part int        // bytes of the part
	kept []byte     // those that have been passed on
	open bool
	err  error // the first failure; nothing is written after it
}

// mostOfPart is how many bytes of a part are passed on. What a library prints without end is cut off.
const mostOfPart = 1 << 20

func (p *passed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := text[:min(len(text), mostOfPart-len(p.kept))]
	p.part += len(text)
	p.kept = append(p.kept, keep...)
	if len(keep) == 0 || p.err != nil {
		return len(text), p.err
	}
	p.open = keep[len(keep)-1] != '\n'
	_, p.err = p.to.Write(keep)
	return len(text), p.err
}

// say ends the part's line, and writes a line of this program's. It writes nothing if the reader reads nothing.
func (p *passed) say(line string) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if p.open {
		line = "\n" + line
	}
	if p.open && bytes.HasSuffix(p.kept, []byte(": ")) {
		line = "not known" + line
	}
	if p.open = false; p.err == nil {
		_, p.err = io.WriteString(p.to, line)
	}
}
