// Package top is gorovod top: what horovodrun --dashboard shows, in a terminal. It reads the events of package
// dashboard, and changes nothing. The engine and package hvd never import it.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/overview"
	"github.com/gorovod/gorovod/internal/observe/straggler"
)

// Command is gorovod top.
var Command = &commandline.Command{
	Name:  "top",
	Usage: "[--once] [JOB]",
	About: "Watch a job in the terminal: who waits for whom, and why",
	Detail: "JOB is the first number of a line of gorovod ps, the process id of any process of the job, or the " +
		"address of a dashboard; GOROVOD_METRICS_TOKEN_FILE has the token if that needs one. Without it, " +
		"you watch the job that runs, or pick one if several run. A job of horovodrun needs no option for this. " +
		"Ranks of other launchers need GOROVOD_DASHBOARD or GOROVOD_METRICS; look on rank 0's host. While nobody " +
		"looks, only the job's summary asks the ranks. A job is shown only to its user and to root. " +
		"q quits, h shows the other keys.",
	Examples: []commandline.Example{
		{Line: "gorovod top", About: "The job that runs on this host."},
		{Line: "gorovod top 4711", About: "The job whose launcher is process 4711: see gorovod ps."},
		{Line: "gorovod top http://127.0.0.1:9500/", About: "The job with this dashboard."},
		{Line: "gorovod top --once 4711", About: "One look in plain lines, for a script."},
	},
	Grammar: func() any { return &options{} },
}

type options struct {
	Once bool   `name:"once" help:"Print what can be seen once, in plain lines, and exit. That takes six seconds at most."`
	Job  string `arg:"" optional:"" default:"" name:"job"`
}

// onceAfter is the number of Snapshots that --once needs: rates are differences, of which a verdict about a slow rank
// needs four. Once the sentence says what a slow rank does, onceAtLeast Snapshots suffice.
const (
	onceAfter   = 6
	onceAtLeast = 3
)

// Main runs the command. It returns the exit code.
func Main(name string, args []string, out *os.File) (code int, err error) {
	o := &options{}
	help, err := Command.Parse(name, o, args)
	switch {
	case err != nil:
		return 2, err
	case help != "":
		_, err = io.WriteString(out, help)
		return failed(err), err
	}
	if !o.Once {
		if err := checkTerminal(out); err != nil {
			return 2, err
		}
	}
	s, err := find(o.Job, os.Getenv)
	var more *several
	switch {
	case errors.As(err, &more) && !o.Once:
		err = watch(more.jobs, out)
	case more != nil:
		more.once = true
	case err != nil:
	case o.Once:
		err = once(s, out)
	default:
		err = watch([]*source{s}, out)
	}
	return failed(err), err
}

func failed(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// checkTerminal refuses a terminal that cannot show a screen.
func checkTerminal(out *os.File) error {
	const instead = "; --once prints plain lines"
	switch {
	case !term.IsTerminal(int(out.Fd())):
		return errors.New("stdout is no terminal" + instead)
	case os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb":
		return errors.New("TERM names no terminal that can move its cursor" + instead)
	}
	return nil
}

// errSeen ends a look.
var errSeen = errors.New("seen")

// once prints the job as it is now.
func once(s *source, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m, seen := &model{name: s.name}, 0
	ending, err := s.follow(ctx, func(now *overview.Snapshot) {
		m.take(now, time.Now())
		named := now.Straggler != nil && now.Straggler.Kind != straggler.Unknown
		if seen++; seen >= onceAfter || seen >= onceAtLeast && named {
			cancel(errSeen)
		}
	})
	over := err == nil
	if err != nil && context.Cause(ctx) != errSeen {
		return err
	}
	var b strings.Builder
	if m.now != nil {
		for _, l := range m.once(time.Now()) {
			b.WriteString(l.String() + "\n")
		}
	}
	if over {
		b.WriteString(ended(s, ending))
	}
	_, err = io.WriteString(out, b.String())
	return err
}

// ended says how a job has ended.
func ended(s *source, e overview.Ending) string {
	text := fmt.Sprintf("%s: it has ended well\n", s.name)
	if e.Code != 0 {
		text = fmt.Sprintf("%s: it has ended with exit code %d\n", s.name, e.Code)
	}
	if e.Text != "" {
		text += printable.Text(strings.TrimRight(e.Text, "\n")) + "\n"
	}
	return text
}
