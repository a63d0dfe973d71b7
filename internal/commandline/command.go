// Package commandline is what the program's commands have in common: abbreviated options,
// advice on misspelt ones, and help, man page and shell completion, all made from the
// tables of options that kong parses. The engine and package hvd never import it.
package commandline

import (
	"bytes"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Command is one command of the program.
type Command struct {
	Name     string // its word after gorovod, such as doctor
	Usage    string // what follows the name on its line, such as -np N [options] command…
	About    string // what it does, on one line
	Detail   string // what else there is to say; paragraphs are separated by empty lines
	Examples []Example
	// Grammar makes kong's grammar of the options. Besides kong's tags, a field may have
	//	onedash: a long name that one dash leads, too
	//	words:   the values that it may have, separated by commas
	//	own:     Horovod has no such option
	//	group:   the heading under which help lists it
	Grammar func() any
	// Words are the arguments that may stand where no option does.
	Words []string
	// Runs says that the first argument which is no option begins another program's command.
	Runs bool
}

// Example is a command line that does something useful.
type Example struct{ Line, About string }

// Option is a row of a command's table.
type Option struct {
	Names  []string // with their dashes, the shortest first
	Off    string   // the opposite, such as --no-autotune; empty for none
	Value  string   // what to call its value, such as FILE; empty for a switch
	Help   string
	Group  string
	Words  []string // that its value may be; nil for any
	Many   bool     // it may be given several times
	Hidden bool     // from users
	Own    bool     // Horovod has no such option
}

// Values is how many arguments follow the option.
func (o *Option) Values() int { return len(strings.Fields(o.Value)) }

// The kinds of values that a shell offers for an option.
const (
	anything = "anything" // that is, nothing
	files    = "files"
	folders  = "folders"
	programs = "programs"
	choices  = "choices" // Option.Words
)

// offers is which of these it is, as the name of the value says.
func (o *Option) offers() string {
	switch {
	case o.Words != nil:
		return choices
	case o.Value == "FILE":
		return files
	case o.Value == "DIR" || o.Value == "PID|DIR":
		return folders
	case o.Value == "COMMAND" || o.Value == "PROGRAM":
		return programs
	}
	return anything
}

// Parser makes a parser that fills grammar, which c.Grammar has made; help is what it
// prints where it is asked to. Plain makes its errors plain.
func (c *Command) Parser(name string, grammar any) (parser *kong.Kong, help *bytes.Buffer, err error) {
	help = &bytes.Buffer{}
	parser, err = kong.New(grammar, append(numbers(), kong.Name(name), kong.Writers(help, help),
		kong.Exit(func(int) {}), kong.Help(func(kong.HelpOptions, *kong.Context) error {
			c.WriteHelp(help, name)
			return nil
		}))...)
	return parser, help, err
}

// Parse fills grammar, which c.Grammar has made, with what args say; help is the text to
// print if that was asked for. name is how the command was called.
func (c *Command) Parse(name string, grammar any, args []string) (help string, err error) {
	parser, text, err := c.Parser(name, grammar)
	if err != nil {
		return "", err
	}
	args = slices.Clone(args)
	table := c.Options()
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		if args[i], err = table.Expand(args[i]); err != nil {
			return "", err
		}
		if o := table.Find(args[i]); o != nil {
			i += o.Values() // which may look like options
		}
	}
	_, err = parser.Parse(args)
	if text.Len() > 0 { // whatever else may be missing
		return text.String(), nil
	}
	return "", Plain(err, args)
}

// Options is the command's table, in the order of its grammar.
func (c *Command) Options() (all Table) {
	if c.Grammar == nil {
		return nil
	}
	parser, err := kong.New(c.Grammar(), kong.Name(c.Name))
	if err != nil {
		panic(err) // the grammar is a part of the program
	}
	for _, flag := range parser.Model.Flags {
		o := Option{Help: flag.Help, Hidden: flag.Hidden, Own: flag.Tag.Has("own"), Many: flag.IsCumulative()}
		if flag.Short != 0 {
			o.Names = append(o.Names, "-"+string(flag.Short))
		}
		if name := flag.Tag.Get("onedash"); name != "" {
			o.Names = append(o.Names, "-"+name)
		}
		for _, name := range append([]string{flag.Name}, flag.Aliases...) {
			o.Names = append(o.Names, "--"+name)
		}
		switch no := flag.Tag.Negatable; no {
		case "":
		case "_": // kong's word for the usual one
			o.Off = "--no-" + flag.Name
		default:
			o.Off = "--" + no
		}
		if !flag.IsBool() {
			o.Value = flag.PlaceHolder
		}
		if flag.Group != nil {
			o.Group = flag.Group.Title
		}
		if words := flag.Tag.Get("words"); words != "" {
			o.Words = strings.Split(words, ",")
		}
		if flag.Name == "help" {
			o.Help = "Show this help."
		}
		all = append(all, o)
	}
	return all
}
