package launch

import (
	"fmt"
	"strings"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/spelling"
	"github.com/gorovod/gorovod/internal/base/version"
	"github.com/gorovod/gorovod/internal/launch/ending"
)

// gorovod describes the program to its users.
func gorovod() *commandline.Program {
	return &commandline.Program{
		Name:     "gorovod",
		Alias:    "horovodrun",
		About:    "start distributed jobs, and look at what they run on",
		Commands: shown(),
		Footer:   "gorovod " + version.Version,
		Sections: []commandline.Section{
			{Title: "EXIT STATUS", Text: "That of the first process that failed; 128+n if signal n ended that " +
				"process or the launcher; 2 if the arguments make no sense; 126 or 127 if the command cannot be run."},
			{Title: "ENVIRONMENT", Text: "gorovod doctor --env lists all variables, their values and what they mean."},
		},
	}
}

// usage is what gorovod --help prints.
func usage() string {
	var b strings.Builder
	b.WriteString("usage: gorovod COMMAND [options]\n\nCommands:\n")
	for _, c := range gorovod().Commands {
		fmt.Fprintf(&b, "  %-12s%s\n", c.Name, c.About)
	}
	b.WriteString("  --version   Print the version\n  --licenses  Print the licences of all that is in this " +
		"program\n\nExamples:\n")
	for _, c := range gorovod().Commands {
		if len(c.Examples) > 0 {
			fmt.Fprintf(&b, "  %s\n", strings.Replace(c.Examples[0].Line, "horovodrun", "gorovod run", 1))
		}
	}
	b.WriteString("\nhorovodrun is another name of gorovod run. gorovod COMMAND --help says more.\n")
	return b.String()
}

// misspelt is the error for an unknown command.
func misspelt(word string) error {
	if strings.HasPrefix(word, "-") {
		return fmt.Errorf("%s: a command comes first: to start a job, write gorovod run %[1]s … or horovodrun %[1]s …",
			word)
	}
	known := []string{"help", "version"}
	for _, c := range gorovod().Commands {
		known = append(known, c.Name)
	}
	return fmt.Errorf("unknown command %q%s", word, spelling.DidYouMean(word, known))
}

var completionCommand = &commandline.Command{
	Name:  "completion",
	Usage: strings.Join(commandline.Shells, "|"),
	About: "Print the script by which a shell completes command lines",
	Detail: `The wheel installs the completion under the prefix of its Python. Shells find it there if the prefix is
/usr/local or ~/.local. Otherwise, for example in a virtual environment, run one of these:`,
	Examples: []commandline.Example{
		{Line: "source <(gorovod completion bash)", About: "In bash; write it into ~/.bashrc to keep it."},
		{Line: "source <(gorovod completion zsh)", About: "In zsh, after compinit."},
		{Line: "gorovod completion fish | source", About: "In fish."},
	},
	Grammar: func() any { return &named{} },
	Words:   commandline.Shells,
}

var manCommand = &commandline.Command{
	Name:     "man",
	Usage:    "[gorovod|horovodrun]",
	About:    "Print the man page",
	Examples: []commandline.Example{{Line: "gorovod man | man -l -", About: "Read it."}},
	Grammar:  func() any { return &named{} },
	Words:    []string{"gorovod", "horovodrun"},
}

// named is the one argument of a command.
type named struct {
	Name string `arg:"" optional:"" default:""`
}

// complete is gorovod completion.
func complete(name string, args []string) (code int, err error) {
	return printNamed(completionCommand, name, args, gorovod().Completion)
}

// manual is gorovod man.
func manual(name string, args []string) (code int, err error) {
	return printNamed(manCommand, name, args, gorovod().Man)
}

// printNamed prints the text for the one argument of a command.
func printNamed(c *commandline.Command, name string, args []string, make func(what string) (string, error)) (code int,
	err error) {
	var o named
	text, err := c.Parse(name, &o, args)
	if err == nil && text == "" {
		text, err = make(o.Name)
	}
	if err != nil {
		return ending.UsageCode, err
	}
	return show(name, text), nil
}
