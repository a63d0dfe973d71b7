// Package commandline is what the program's commands share: abbreviated options, advice on misspelt options, and help,
// man page and shell completion. All of it comes from the tables of options that kong parses. The engine and package
// hvd never import it.
package commandline

import (
	"bytes"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Command is one command of the program.
type Command struct {
	Name     string // the word after gorovod, such as doctor
	Usage    string // the text after the name in the usage line, such as -np N [options] command…
	About    string // what the command does, on one line
	Detail   string // more text for help; empty lines separate paragraphs
	Examples []Example
	// Grammar makes kong's grammar of the options. Besides kong's tags, a field may have:
	//  onedash: a long name that may also have only one dash
	//  words:   the possible values, separated by commas
	//  own:     Horovod has no such option
	//  group:   the heading under which help lists the option
	Grammar func() any
	// Words are the arguments that may come where there is no option.
	Words []string
	// Runs: the first argument that is no option begins another program's command.
	Runs bool
}

// Example is a command line that does something useful.
type Example struct{ Line, About string }

// Option is a row of a command's table.
type Option struct {
	Names  []string // with their dashes, the shortest first
	Off    string   // the opposite, such as --no-autotune; empty for none
	Value  string   // the name of the value, such as FILE; empty for a switch
	Help   string
	Group  string
	Words  []string // the possible values; nil for any
	Many   bool     // the option may be given several times
	Hidden bool     // not shown to users
	Own    bool     // Horovod has no such option
}

// Values is how many arguments follow the option.
func (o *Option) Values() int { return len(strings.Fields(o.Value)) }

// The kinds of values that a shell offers for an option.
const (
	anything = "anything" // the shell offers nothing
	files    = "files"
	folders  = "folders"
	programs = "programs"
	choices  = "choices" // Option.Words
)

// offers is the kind of the option's value, according to the value's name.
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

// Parser makes a parser that fills grammar, which must come from c.Grammar. The parser writes to help if the user asks
// for help. Plain turns its errors into plain words.
func (c *Command) Parser(name string, grammar any) (parser *kong.Kong, help *bytes.Buffer, err error) {
	help = &bytes.Buffer{}
	parser, err = kong.New(grammar, append(numbers(), kong.Name(name), kong.Writers(help, help),
		kong.Exit(func(int) {}), kong.Help(func(kong.HelpOptions, *kong.Context) error {
			c.WriteHelp(help, name)
			return nil
		}))...)
	return parser, help, err
}

// Parse fills grammar, which must come from c.Grammar, from args. help is the text to print if the user asked for help.
// name is the name by which the command was called.
func (c *Command) Parse(name string, grammar any, args []string) (help string, err error) {
	parser, text, err := c.Parser(name, grammar)
	if err != nil {
		return "", err
	}
	args = slices.Clone(args)
	table := c.Options()
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		typed := args[i]
		if args[i], err = table.Expand(typed); err != nil {
			return "", err
		}
		name, value, inline := strings.Cut(args[i], "=")
		o := table.Find(name)
		if o == nil || o.Values() == 0 {
			continue
		}
		if !inline {
			if i++; i == len(args) || len(args[i]) > 1 && args[i][0] == '-' && !negative(args[i]) {
				return "", MissingValue(typed) // kong takes no value that looks like an option
			}
			value = args[i]
			i += o.Values() - 1
		}
		if value == "" {
			return "", EmptyValue(name)
		}
	}
	_, err = parser.Parse(args)
	if text.Len() > 0 { // help is printed even if something is missing
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
		panic(err) // the grammar is part of the program
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
		case "_": // kong's name for the usual negation
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
