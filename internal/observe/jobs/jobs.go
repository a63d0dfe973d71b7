// Package jobs is gorovod ps: the jobs that run on this host.
package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/flight"
)

// Command is gorovod ps.
var Command = &commandline.Command{
	Name:  "ps",
	Usage: "[--json]",
	About: "List the jobs that run on this host, and what they wait for",
	Detail: "All ranks of this user tell what they do, whatever started them; root sees those of all users. The " +
		"first number of a line is the launcher's process id, or that of the first rank here: gorovod top and " +
		"gorovod doctor --dump take it.",
	Examples: []commandline.Example{
		{Line: "gorovod ps", About: "What runs, for how long, and what it waits for."},
		{Line: "watch gorovod ps", About: "Look again every two seconds."},
	},
	Grammar: func() any { return &options{} },
}

type options struct {
	JSON bool `name:"json" help:"Print a JSON object for each job."`
}

// Job describes a job of which at least one rank runs on this host.
type Job struct {
	PID     int       `json:"pid"`     // of the launcher, or of the first rank here
	Ranks   []int     `json:"ranks"`   // the ranks on this host that answer
	Size    int       `json:"size"`    // of the job
	Network string    `json:"network"` // what connects the ranks here
	Started time.Time `json:"started"` // when the first rank's process started; zero if that is not known
	Now     string    `json:"now"`     // what the job does or waits for
	Command string    `json:"command"` // of the first rank here
}

// Main runs the command. It returns the exit code.
func Main(name string, args []string, out io.Writer) (code int, err error) {
	o := &options{}
	help, err := Command.Parse(name, o, args)
	switch {
	case err != nil:
		return 2, err
	case help != "":
		_, err = io.WriteString(out, help)
		return failed(err), err
	}
	jobs, silent, err := Running()
	if err != nil {
		return 1, err
	}
	if o.JSON {
		err = writeJSON(out, jobs)
	} else {
		err = writeTable(out, jobs, silent, time.Now())
	}
	return failed(err), err
}

// Running are the jobs of this user on this host, and the processes that do not answer.
func Running() ([]Job, []flight.Silent, error) {
	running, silent, err := flight.Running()
	if err != nil {
		return nil, nil, err
	}
	jobs := make([]Job, 0, len(running))
	for _, dumps := range running {
		jobs = append(jobs, describe(dumps))
	}
	slices.SortFunc(jobs, func(a, b Job) int { return a.PID - b.PID })
	return jobs, silent, nil
}

func failed(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// describe makes a Job from the dumps of its ranks here, at least one.
func describe(dumps []*flight.Dump) Job {
	first := dumps[0]
	j := Job{PID: flight.Launcher(first.PID), Size: first.Size, Network: first.Network, Started: started(first.PID),
		Now: flight.Now(dumps), Command: commandOf(first.PID)}
	if j.PID == 0 {
		j.PID = first.PID
	}
	for _, d := range dumps {
		j.Ranks = append(j.Ranks, d.Rank)
	}
	return j
}

func writeJSON(out io.Writer, jobs []Job) error {
	e := json.NewEncoder(out)
	for _, j := range jobs {
		if err := e.Encode(j); err != nil {
			return err
		}
	}
	return nil
}

// writeTable writes the jobs for people, and below them the processes that do not answer.
func writeTable(out io.Writer, jobs []Job, silent []flight.Silent, now time.Time) error {
	if len(jobs) == 0 && len(silent) == 0 {
		_, err := fmt.Fprintln(out, "no job of this user runs on this host")
		return err
	}
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	if len(jobs) > 0 {
		fmt.Fprintln(w, "PID\tRANKS\tOVER\tSINCE\tCOMMAND")
	}
	for _, j := range jobs {
		ranks := fmt.Sprintf("%d of %d", len(j.Ranks), j.Size)
		if len(j.Ranks) == j.Size {
			ranks = fmt.Sprint(j.Size)
		}
		since := "?"
		if !j.Started.IsZero() {
			since = now.Sub(j.Started).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", j.PID, ranks, cell(j.Network), since,
			Short(cell(j.Command), MostCommand))
	}
	w.Flush()
	// What a job does is a sentence, which has lines of its own: 80 columns are enough for the rest.
	number := -1 // of the job; the heading has none
	for row := range strings.Lines(table.String()) {
		if _, err := io.WriteString(out, row); err != nil {
			return err
		}
		if number >= 0 {
			for _, line := range printable.Wrap(cell(jobs[number].Now), columns-2) {
				if _, err := fmt.Fprintf(out, "  %s\n", line); err != nil {
					return err
				}
			}
		}
		number++
	}
	for _, s := range silent {
		who := "a rank"
		if s.Rank >= 0 {
			who = fmt.Sprintf("rank %d of some job", s.Rank)
		}
		if _, err := fmt.Fprintf(out, "%s does not answer: %s\n", who, printable.Text(s.Why())); err != nil {
			return err
		}
	}
	return nil
}

// columns is the width of the narrowest usual terminal.
const columns = 80

// CommandOf is the command line of a process on this host, for a terminal, in so many characters; "?" if it is not
// known.
func CommandOf(pid, most int) string { return Short(cell(commandOf(pid)), most) }

// cell makes one cell of the table from a text of a rank, which may be anything.
func cell(s string) string {
	return strings.Join(strings.Fields(printable.Text(s)), " ")
}

// MostCommand is how many characters of a command line fit into the table.
const MostCommand = 40

// Short cuts a command line to so many characters, at least one. Folders go first, because the name of the script says
// most.
func Short(s string, most int) string {
	if len([]rune(s)) > most {
		words := strings.Fields(s)
		for i, word := range words {
			if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") && !strings.HasSuffix(word, "/") {
				words[i] = path.Base(word)
			}
		}
		s = strings.Join(words, " ")
	}
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
