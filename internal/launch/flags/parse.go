package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/launch/meeting"
)

// Command is horovodrun, also called gorovod run.
var Command = &commandline.Command{
	Name:  "run",
	Usage: "-np N [options] command…",
	About: "Start N processes of a command, connect them, and watch them",
	Detail: `The processes run on this host or on several. The command begins at the first argument that is no option.
You may cut an option short if no other one begins the same way: --verb is --verbose.`,
	Examples: []commandline.Example{
		{Line: "horovodrun -np 4 python train.py", About: "4 processes on this host."},
		{Line: "horovodrun -np 8 -H node1:4,node2:4 python train.py", About: "4 on each of two hosts, by ssh."},
		{Line: "horovodrun -np 4 --min-np 2 python train.py",
			About: "An elastic job, which goes on while 2 processes are left."},
		{Line: "horovodrun -np 4 --host-discovery-script ./hosts.sh python train.py",
			About: "An elastic job on the hosts that a program lists."},
		{Line: "horovodrun -np 2 --timeline-filename trace.json python train.py",
			About: "A trace of all operations, for chrome://tracing or ui.perfetto.dev."},
	},
	Grammar: func() any { return &Flags{} },
	Runs:    true,
}

// otherNames are deprecated options. Each means the opposite of the option whose name it negates.
var otherNames = map[string]string{
	"--log-hide-timestamp":    "--log-without-timestamp",
	"--no-log-hide-timestamp": "--log-with-timestamp",
}

// emptyMeansNone are options whose value is a list of words; the list may be empty.
var emptyMeansNone = map[string]bool{"--mpi-args": true, "--binding-args": true}

// Parse parses the arguments, and checks everything that does not depend on the host.
func Parse(name string, args []string) (*Flags, error) {
	f := &Flags{}
	parser, help, err := Command.Parser(name, f)
	if err != nil {
		return nil, err
	}
	options, command, warnings, err := split(args)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(options); err != nil {
		return nil, commandline.Plain(err, options)
	}
	if help.Len() > 0 {
		f.Help = help.String()
		return f, nil
	}
	if err := checkOpposites(parser, options); err != nil {
		return nil, err
	}
	f.Command, f.Warnings = command, warnings
	if f.Version || f.CheckBuild {
		return f, nil
	}
	if given := f.NetworkInterfaces; len(given) > 0 {
		for _, o := range options {
			if name, list, _ := strings.Cut(o, "="); name == "--network-interface" && strings.Contains(list, ",") {
				f.Warnings = append(f.Warnings,
					"--network-interface "+list+": a list of names is for "+meeting.InterfacesOption)
			}
		}
		if f.NetworkInterfaces = separate(given); len(f.NetworkInterfaces) == 0 {
			return nil, fmt.Errorf("%s: names of interfaces are needed", meeting.InterfacesOption)
		}
	}
	if f.ConfigFile != "" {
		if err := f.readConfig(f.ConfigFile); err != nil {
			return nil, fmt.Errorf("--config-file: %w", err)
		}
	}
	return f, f.check(options)
}

// Spellings are the names of all options, Horovod's and our own.
func Spellings() commandline.Table {
	table := Command.Options()
	for name := range otherNames {
		table = table.With(name)
	}
	for name := range refused {
		table = table.With(name)
	}
	return table
}

// split cuts args where the command begins, spells options as the parser needs them, and refuses options of Horovod
// that this version does not have. It warns of old names.
func split(args []string) (options, command, warnings []string, err error) {
	table := Spellings()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return options, args[i+1:], warnings, nil
		}
		if len(arg) < 2 || arg[0] != '-' {
			return options, args[i:], warnings, nil
		}
		if arg, err = table.Expand(arg); err != nil {
			return nil, nil, nil, err
		}
		option, value, inline := strings.Cut(arg, "=")
		if name, ok := otherNames[option]; ok {
			warnings = append(warnings, option+" is an old name: use "+name)
			option, arg = name, name+strings.TrimPrefix(arg, option)
		}
		if why := refusal(option); why != "" {
			return nil, nil, nil, errors.New(why)
		}
		known := table.Find(option)
		if known == nil || known.Values() == 0 {
			options = append(options, arg)
			continue
		}
		if !inline && option == DashboardOption {
			options = append(options, option+"="+AnyPort)
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return nil, nil, nil, commandline.MissingValue(args[i-1])
			}
			value = args[i]
			if option == cooldownOption && !strings.Contains(value, ",") {
				if i++; i < len(args) {
					value += "," + args[i]
				}
			}
		}
		if value == "" && !emptyMeansNone[option] {
			return nil, nil, nil, commandline.EmptyValue(option)
		}
		if option == cooldownOption && !twoSeconds().MatchString(value) {
			given := strings.Replace(value, ",", " ", 1)
			return nil, nil, nil, fmt.Errorf("%s %s: two numbers of seconds are needed, MIN MAX", option, given)
		}
		if strings.HasPrefix(option, "--") {
			// Joined, so that the parser does not read a negative number as an option.
			options = append(options, option+"="+value)
		} else {
			options = append(options, option, value)
		}
	}
	return options, nil, warnings, nil
}

// DashboardOption needs no value; without one it means AnyPort.
const (
	DashboardOption = "--dashboard"
	AnyPort         = "0"
)

// cooldownOption has two values.
const cooldownOption = "--blacklist-cooldown-range"

var twoSeconds = lazyregexp.New(`^-?[0-9]{1,18},-?[0-9]{1,18}$`)
