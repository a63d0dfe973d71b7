package launch

import (
	"fmt"
	"os"
	"slices"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/joining/observer"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
	"github.com/gorovod/gorovod/internal/observe/jobs"
	"github.com/gorovod/gorovod/internal/observe/top"
	"github.com/gorovod/gorovod/internal/observe/tracemerge"
	"github.com/gorovod/gorovod/internal/tools/bench"
	"github.com/gorovod/gorovod/internal/tools/doctor"
	"github.com/gorovod/gorovod/internal/tools/manifests"
	"github.com/gorovod/gorovod/internal/tools/notices"
)

// subcommand is what the first word after gorovod may be.
type subcommand struct {
	// words choose it; messages have the first one.
	words []string
	// shown is what help, man page and completion say of it; nil for a command that is not for users, or an option.
	shown *commandline.Command
	// run does it. name is "gorovod" and the first word. It prints everything but err.
	run func(name string, args []string) (code int, err error)
}

// subcommands are all of them, in the order of the help.
func subcommands() []subcommand {
	return []subcommand{
		of(flags.Command, run),
		of(jobs.Command, func(name string, args []string) (int, error) { return jobs.Main(name, args, os.Stdout) }),
		of(top.Command, func(name string, args []string) (int, error) { return top.Main(name, args, os.Stdout) }),
		of(doctor.Command, func(_ string, args []string) (int, error) { return runDoctor(args), nil }),
		of(bench.Command, func(name string, args []string) (int, error) {
			return bench.Main(name, args, os.Stdout, os.Stderr), nil
		}),
		of(meetingCommand, func(name string, args []string) (int, error) {
			return serveRendezvous(name, args, os.Getenv(spawn.SecretVariable), os.Stdout)
		}),
		of(leaveCommand, leave),
		of(tracemerge.Command, func(name string, args []string) (int, error) {
			return tracemerge.Main(name, args, os.Stdout)
		}),
		of(manifests.Command, func(name string, args []string) (int, error) {
			return manifests.Main(name, args, os.Stdout, flags.Rendered)
		}),
		of(completionCommand, complete),
		of(manCommand, manual),
		{[]string{"agent"}, nil, func(string, []string) (int, error) {
			return remote.ServeAgent(os.Stdin, os.Stdout), nil
		}},
		{[]string{"drive"}, nil, func(name string, args []string) (int, error) {
			return serveDrive(name, args, os.Stdin, os.Stdout)
		}},
		{[]string{observer.Subcommand}, nil, func(_ string, args []string) (int, error) { return observe(args) }},
		{[]string{"version", "--version", "-v"}, nil, func(string, []string) (int, error) {
			return show("gorovod", fmt.Sprintf("gorovod %s (build %s%s; interface of Horovod %s)\n", version.Version,
				wire.Build(), revision(), version.Horovod)), nil
		}},
		{[]string{"--licenses"}, nil, func(string, []string) (int, error) {
			return show("gorovod", notices.Text), nil
		}},
		{[]string{"help", "--help", "-h"}, nil, func(string, []string) (int, error) {
			return show("gorovod", usage()), nil
		}},
	}
}

// of is a command for users. Its first word is the first of its name.
func of(c *commandline.Command, run func(name string, args []string) (code int, err error)) subcommand {
	return subcommand{[]string{c.Name}, c, run}
}

// subcommandOf is the one that a word chooses; nil for none.
func subcommandOf(word string) *subcommand {
	all := subcommands()
	if i := slices.IndexFunc(all, func(c subcommand) bool { return slices.Contains(c.words, word) }); i >= 0 {
		return &all[i]
	}
	return nil
}

// shown are the descriptions of the commands for users.
func shown() (list []*commandline.Command) {
	for _, c := range subcommands() {
		if c.shown != nil {
			list = append(list, c.shown)
		}
	}
	return list
}
