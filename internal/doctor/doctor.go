// Package doctor tells a user what gorovod sees: gorovod doctor --env prints every
// variable of the environment that it knows, its value, and what it does with it.
package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// options are those of gorovod doctor.
type options struct {
	Env bool `help:"Print all environment variables of gorovod and Horovod with their values."`
}

// exitUsage is the exit code for arguments that make no sense.
const exitUsage = 2

// Main is the subcommand: name is how it was called, args its arguments and
// environ the environment, as os.Environ has it. It returns the exit code: 1 if
// something is wrong.
func Main(name string, args, environ []string, stdout, stderr io.Writer) int {
	code, err := run(name, args, environ, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return code
}

func run(name string, args, environ []string, stdout io.Writer) (int, error) {
	var o options
	var help bytes.Buffer
	parser, err := kong.New(&o, kong.Name(name), kong.Writers(&help, &help), kong.Exit(func(int) {}),
		kong.Description("Say what gorovod sees. Exit code 1 if something is wrong."))
	if err != nil {
		return exitUsage, err
	}
	if _, err := parser.Parse(args); err != nil {
		return exitUsage, err
	}
	switch {
	case help.Len() > 0:
		_, err := help.WriteTo(stdout)
		return 0, err
	case !o.Env:
		return exitUsage, errors.New("say what to examine: --env")
	}
	if err := Env(stdout, environ); err != nil {
		return 1, err
	}
	return 0, nil
}
