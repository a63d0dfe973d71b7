package tracemerge

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/printable"
)

// Command is gorovod trace.
var Command = &commandline.Command{
	Name:  "trace",
	Usage: "merge FILES… -o FILE",
	About: "Make one trace of the timelines of a job's ranks",
	Detail: `The files are those that the ranks of horovodrun --timeline-filename 'trace-{rank}.json' have written. The result is
for ui.perfetto.dev or chrome://tracing. The clocks of the hosts are aligned by the operations that the ranks have in
common: the command prints each rank's offset and its error. Arrows lead from the last rank that came to an operation
to those that waited for it. Files of killed ranks, and missing ones, are no obstacle.`,
	Examples: []commandline.Example{
		{Line: "gorovod trace merge trace-*.json -o job.json", About: "One trace of all ranks."},
	},
	Grammar: func() any { return &options{} },
	Words:   []string{"merge"},
}

type options struct {
	Action  string   `arg:"" optional:""`
	Files   []string `arg:"" optional:""`
	Output  string   `short:"o" placeholder:"FILE" help:"Write the trace to FILE. Required."`
	MinWait int      `default:"100" placeholder:"MICROSECONDS" help:"Draw an arrow for waits of this length or longer. Default: 100."`
}

const exitUsage = 2

// Main runs the command. It returns the exit code.
func Main(name string, args []string, stdout io.Writer) (code int, err error) {
	var o options
	help, err := Command.Parse(name, &o, args)
	switch {
	case err != nil:
		return exitUsage, err
	case help != "":
		_, err := io.WriteString(stdout, help)
		return failed(err), err
	case o.Action != "merge":
		return exitUsage, errors.New("merge is needed: gorovod trace merge trace-*.json -o job.json")
	case len(o.Files) == 0:
		return exitUsage, errors.New("no files are given: gorovod trace merge trace-*.json -o job.json")
	case o.Output == "":
		return exitUsage, errors.New("-o is needed: the file to write, such as -o job.json")
	case o.Output == "-":
		return exitUsage, errors.New("-o -: a file's name is needed, such as -o job.json, since the report goes to " +
			"standard output")
	case o.MinWait < 0:
		return exitUsage, fmt.Errorf("--min-wait %d: a number of microseconds from 0 on is needed", o.MinWait)
	}
	rep, err := Merge(Options{Files: o.Files, Output: o.Output, MinWait: time.Duration(o.MinWait) * time.Microsecond})
	if err != nil {
		return 1, err
	}
	_, err = io.WriteString(printable.Writer{To: stdout}, rep.Text(o.Output))
	return failed(err), err
}

func failed(err error) int {
	if err != nil {
		return 1
	}
	return 0
}
