// Package doctor shows a user what gorovod sees. gorovod doctor examines the hosts of a job (package cluster), and the
// variables of its own environment, which the job would have. With --env it prints every variable of the environment
// that it knows, its value, and its effect. With --bundle it packs all of this for somebody who helps.
package doctor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
)

// options are the options of gorovod doctor. Two options with a common word in their tags xor exclude each other.
type options struct {
	Cluster
	Dump    string `placeholder:"PID|DIR" help:"Print the last operations of a job's ranks on this host, what each rank waits for, and which ranks are missing. PID is the process id of the launcher or of a rank; DIR is the job's GOROVOD_DUMP_DIR. Default: examine hosts."`
	FRTrace string `name:"fr-trace" placeholder:"DIR" help:"With --dump: also write the last operations into a new folder DIR, as PyTorch's flight recorder does, for its analyser torchfrtrace. Default: only print."`
	Env     bool   `help:"Print all environment variables of gorovod and Horovod with their values, and examine nothing else." xor:"what,pack,port,identity,remote,timeout,pairs"`
	GPU     bool   `name:"gpu" help:"Print what a process of --python has of GPUs, CUDA and NCCL, and how it moves tensors of GPUs, and examine nothing else." xor:"what,pack,port,identity,remote,timeout,pairs"`
	Bundle  string `placeholder:"FILE" help:"Write a report for others into a new FILE (.tar.gz, .tgz or .zip), without secrets: versions, the doctor's findings, variables, and the last operations of the jobs that run on this host, or of the job of --dump. Default: print the findings." xor:"pack"`
}

// Cluster says which hosts to examine, and how to reach them, with horovodrun's options.
type Cluster struct {
	Hosts           string            `short:"H" placeholder:"HOST:SLOTS,..." help:"The hosts to examine, with the connections between them. Default: this host." xor:"what"`
	Hostfile        string            `placeholder:"FILE" help:"Read the hosts from a file, with a line 'HOST slots=SLOTS' for each. Default: --hosts." xor:"what"`
	SSHPort         *int              `name:"ssh-port" short:"p" placeholder:"PORT" help:"Port of the other hosts' sshd. Default: what ssh's configuration says." xor:"port"`
	SSHIdentityFile string            `name:"ssh-identity-file" short:"i" placeholder:"FILE" help:"Private key for the other hosts. Default: what ssh's configuration says." xor:"identity"`
	RemoteCommand   string            `placeholder:"COMMAND" help:"The command that runs gorovod on the other hosts. Default: the first of this program's own path, gorovod in the PATH there, and gorovod beside the job's Python." xor:"remote"`
	StartTimeout    *int              `placeholder:"SECONDS" help:"Seconds that it may take to connect to the other hosts. Default: 30." xor:"timeout"`
	Python          string            `placeholder:"PROGRAM" help:"The Python whose frameworks the report lists. Default: python3."`
	Named           bool              `kong:"-"` // Python, by the user
	Variables       cluster.Variables `kong:"-"` // of this environment
	Columns         int               `kong:"-"` // of the report's lines; 0: no limit
	NoPairs         bool              `help:"Do not measure the connections between the hosts. Default: measure them." xor:"pairs"`
}

// startTimeout is the default of Cluster.StartTimeout.
const startTimeout = 30

// Command is gorovod doctor.
var Command = &commandline.Command{
	Name:  "doctor",
	Usage: "[options]",
	About: "Examine this host, or several hosts and their connections",
	Detail: "The exit code is 0 if a job can run, 1 if it cannot, 2 if the arguments make no sense. With --bundle " +
		"it is 0 if the file was written. With --gpu it is 0 if the report was printed, also if some of its lines " +
		"begin with WRONG, and 1 if there is no such Python, or it has no gorovod.",
	Examples: []commandline.Example{
		{Line: "gorovod doctor", About: "This host, and the environment variables."},
		{Line: "gorovod doctor -H node1:4,node2:4", About: "Two hosts and the connection between them."},
		{Line: "gorovod doctor --env", About: "The environment variables that are known here, and their values."},
		{Line: "gorovod doctor --gpu", About: "What this host's Python has of GPUs, CUDA and NCCL."},
		{Line: "gorovod doctor --bundle help.tar.gz", About: "All of this in a file to send, without secrets."},
		{Line: "gorovod doctor --dump 4711", About: "What the ranks of a running job wait for; 4711 is its " +
			"launcher's process."},
		{Line: "gorovod doctor --dump 4711 --fr-trace fr", About: "The same for PyTorch's analyser: torchfrtrace fr."},
	},
	Grammar: func() any { return &options{} },
}

// ErrUnwell is the error of an examination that has found, and printed, reasons why a job cannot run.
var ErrUnwell = errors.New("a job cannot run")

// Misuse is examine's error for arguments that make no sense.
type Misuse struct{ Err error }

func (m Misuse) Error() string { return m.Err.Error() }
func (m Misuse) Unwrap() error { return m.Err }

// exitUsage is the exit code for invalid arguments.
const exitUsage = 2

// Main is the subcommand. name is the name by which it was called, args its arguments, and environ the environment, as
// from os.Environ. It returns the exit code: 1 if something is wrong, 2 if the arguments make no sense. examine
// examines hosts and prints its findings.
func Main(name string, args, environ []string, stdout, stderr io.Writer, examine func(Cluster, io.Writer) error) int {
	columns := columnsOf(stdout)
	// because hosts and ranks choose some of the text
	stdout, stderr = printable.Writer{To: stdout}, printable.Writer{To: stderr}
	code, err := run(name, args, environ, stdout, columns, examine)
	if err != nil && !errors.Is(err, ErrUnwell) {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return code
}

func run(name string, args, environ []string, stdout io.Writer, columns int,
	examine func(Cluster, io.Writer) error) (int, error) {
	var o options
	for _, a := range args {
		if a == "" || strings.HasPrefix(a, "-") && strings.HasSuffix(a, "=") {
			return exitUsage, errors.New("an argument is empty: is a variable in the command not set?")
		}
	}
	help, err := Command.Parse(name, &o, args)
	if o.Named = o.Python != ""; !o.Named {
		o.Python = cluster.DefaultPython
	}
	if o.StartTimeout == nil {
		o.StartTimeout = new(startTimeout)
	}
	o.Variables = variables(environ)
	switch {
	case err != nil:
		return exitUsage, err
	case help != "":
		_, err := io.WriteString(stdout, help)
		return ended(err)
	case *o.StartTimeout < 1:
		return exitUsage, fmt.Errorf("--start-timeout %d: a number above 0 is needed", *o.StartTimeout)
	case o.Dump != "" && o.Bundle == "" && (o.Hosts != "" || o.Hostfile != "" || o.Env || o.GPU):
		return exitUsage, errors.New("--dump can't be used together with -H, --hostfile, --env or --gpu")
	case o.FRTrace != "" && (o.Dump == "" || o.Bundle != ""):
		return exitUsage, errors.New("--fr-trace needs --dump, and can't be used together with --bundle")
	case o.Bundle != "":
		b := bundle{options: o, environ: environ, examine: examine, redact: newRedactor(environ, o.RemoteCommand)}
		return ended(b.write(stdout))
	case o.Dump != "":
		return ended(Dump(stdout, o.Dump, o.FRTrace))
	case o.GPU:
		return ended(GPU(stdout, o.Python, environ))
	case o.Env:
		return ended(Env(stdout, environ))
	}
	o.Columns = columns
	return ended(examine(o.Cluster, stdout))
}

// columnsOf is the width of a terminal; 0 for a file or a pipe, in which a finding has one line, however long.
func columnsOf(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// ended adds the exit code to an error: 2 for invalid arguments, 1 for other errors, 0 for none.
func ended(err error) (int, error) {
	switch {
	case errors.As(err, new(Misuse)):
		return exitUsage, err
	case err != nil:
		return 1, err
	}
	return 0, nil
}
