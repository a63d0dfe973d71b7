// Package bench is gorovod bench: in one run it measures the machine's limits, this engine's allreduce, and its peers
// at the same work.
//
// Every contender is a job of its own. The project's launcher starts it, and its ranks connect to a control socket.
// There they wait for the next order, without using the processor. The conductor (this package's Main) lets one
// contender at a time do one piece of work, in rounds. So other work on the machine disturbs all contenders alike:
//
//	Main ── horovodrun -np N ──▶ ranks (Go, Python, gloo, Open MPI, Horovod)
//	  │                             │
//	  └──── control socket: "run allreduce 262144 100 1" ─▶ times of 100 repetitions
//
// docs/performance.md has the figures, docs/lab/measuring.md explains them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// exitUsage is the exit code for invalid arguments.
const exitUsage = 2

// workerArgument makes the subcommand a rank of the Go job.
const workerArgument = "worker"

// Main is the subcommand: name is the name by which it was called, args are its arguments. The program must be gorovod,
// because it is started again as the launcher and as the ranks. Main returns the exit code: 1 if something that was
// asked for could not be measured, 128+n if signal n ended it.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == workerArgument {
		if err := work(args[1:]); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	o, help, err := parse(name, args)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUsage
	case help != "":
		if _, err := io.WriteString(stdout, help); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			cancel(&interrupted{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	if err := o.run(ctx, stdout, stderr); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		var i *interrupted
		if errors.As(err, &i) {
			return 128 + int(i.signal)
		}
		return 1
	}
	return 0
}

// interrupted is the error of a run that a signal has ended.
type interrupted struct{ signal syscall.Signal }

func (i *interrupted) Error() string { return fmt.Sprintf("interrupted (%v)", i.signal) }

// run measures, prints the tables, and writes the files that the user asked for.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	wanted := []struct {
		option, name string
		write        func(*Report, io.Writer) error
		file         *os.File
	}{
		{option: "--json", name: o.JSON, write: (*Report).writeJSON},
		{option: "--plot", name: o.Plot, write: func(r *Report, w io.Writer) error { return r.plot(w, o.Plot) }},
		{option: "--summary", name: o.Summary, write: func(r *Report, w io.Writer) error {
			return r.summarise(w, o.Summary)
		}},
	}
	for i := range wanted { // first check that the files can be written
		w := &wanted[i]
		if w.name == "" {
			continue
		}
		var err error
		if w.file, err = os.OpenFile(w.name, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
			return fmt.Errorf("%s: %w", w.option, err)
		}
		defer w.file.Close()
	}
	report, err := o.measure(ctx, stderr)
	if err != nil {
		return err
	}
	if err := report.table(stdout); err != nil {
		return err
	}
	for _, w := range wanted {
		if w.file == nil {
			continue
		}
		if err := replace(w.file, func(to io.Writer) error { return w.write(report, to) }); err != nil {
			return fmt.Errorf("%s: %w", w.option, err)
		}
	}
	if err := report.lost(); err != nil || !o.Open {
		return err
	}
	if err := show(ctx, o.Plot, runtime.GOOS, os.Getenv); err != nil {
		return fmt.Errorf("--open: the picture is in %s, and cannot be shown: %w", o.Plot, err)
	}
	return nil
}

// replace writes f anew, and closes it. Until then f has the content of an earlier run.
func replace(f *os.File, write func(io.Writer) error) error {
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}
