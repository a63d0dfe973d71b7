package commandline

import (
	"fmt"
	"strings"
)

// fishWalk is a function that prints where in the line the cursor is: "subcommand"; or the name of a command whose
// options may follow; or "argument" and the words of the program that the command runs.
const fishWalk = `function __%[1]s_place
    set -l words (commandline -opc)
    set -l command %[2]s
    if test (string replace -r '.*/' '' -- $words[1]) = %[1]s
        set -e words[1]
        if not set -q words[1]
            echo subcommand
            return
        end
        set command $words[1]
    end
    set -e words[1]
    set -l one
    set -l two
    set -l runs
    switch $command
`

const fishOptions = `    end
    while set -q words[1]
        switch $words[1]
            case --
                set -e words[1]
                echo argument
                string join \n -- $words
                return
            case '-*=*'
                set -e words[1]
            case '-*'
                set -l count 1
                contains -- $words[1] $one; and set count 2
                contains -- $words[1] $two; and set count 3
                for i in (seq (math min $count,(count $words)))
                    set -e words[1]
                end
            case '*'
                echo argument
                string join \n -- $words
                return
        end
    end
    echo $command
    test -n "$runs"; and echo runs
end
`

const fishArguments = `
function __%[1]s_at
    contains -- (__%[1]s_place)[1] $argv
end

function __%[1]s_runs
    set -l place (__%[1]s_place)
    test "$place[1]" = argument; or test "$place[2]" = runs
end

function __%[1]s_program
    set -l place (__%[1]s_place)
    set -l token (commandline -ct)
    if test "$place[1]" = argument
        complete -C (string join ' ' -- (string escape -- $place[2..]) "$token")
    else if not string match -q -- '-*' "$token"
        __fish_complete_command
    end
end

`

// fish writes a function that finds the cursor's place, and a line for each option.
func (p *Program) fish(b *strings.Builder) {
	fmt.Fprintf(b, "# Completion of %s and %s for fish. It is made by: %s completion fish\n", p.Name, p.Alias, p.Name)
	fmt.Fprintf(b, fishWalk, p.Name, p.Commands[0].Name)
	for _, c := range p.Commands {
		t := c.Options()
		fmt.Fprintf(b, "        case %s\n            set one %s\n            set two %s\n", c.Name, t.taking(1),
			t.taking(2))
		if c.Runs {
			b.WriteString("            set runs 1\n")
		}
	}
	b.WriteString(fishOptions)
	fmt.Fprintf(b, fishArguments, p.Name)
	fmt.Fprintf(b, "complete -c %s -f\ncomplete -c %s -f\n", p.Name, p.Alias)
	for _, c := range p.Commands {
		fmt.Fprintf(b, "complete -c %s -n '__%s_at subcommand' -a %s -d %s\n", p.Name, p.Name, c.Name,
			fishQuoted(c.About))
	}
	for i, c := range p.Commands {
		programs := []string{p.Name}
		if i == 0 {
			programs = append(programs, p.Alias)
		}
		for _, program := range programs {
			line := fmt.Sprintf("complete -c %s -n '__%s_at %s'", program, p.Name, c.Name)
			for _, o := range c.Options() {
				if !o.Hidden {
					o.fish(b, line)
				}
			}
			if len(c.Words) > 0 {
				fmt.Fprintf(b, "%s -a %s\n", line, fishQuoted(strings.Join(c.Words, " ")))
			}
			if c.Runs {
				fmt.Fprintf(b, "complete -c %s -n __%s_runs -a '(__%s_program)'\n", program, p.Name, p.Name)
			}
		}
	}
}

func (o *Option) fish(b *strings.Builder, line string) {
	b.WriteString(line)
	for _, name := range o.shown() {
		switch {
		case len(name) == 2:
			b.WriteString(" -s " + name[1:])
		case name[1] == '-':
			b.WriteString(" -l " + name[2:])
		default:
			b.WriteString(" -o " + name[1:])
		}
	}
	switch o.offers() {
	case files:
		b.WriteString(" -r -F")
	case folders:
		b.WriteString(" -x -a '(__fish_complete_directories)'")
	case programs:
		b.WriteString(" -x -a '(__fish_complete_command)'")
	case choices:
		b.WriteString(" -x -a " + fishQuoted(strings.Join(o.Words, " ")))
	default:
		if o.Value != "" {
			b.WriteString(" -x")
		}
	}
	fmt.Fprintf(b, " -d %s\n", fishQuoted(o.Help))
	if o.Off != "" {
		fmt.Fprintf(b, "%s -l %s -d %s\n", line, strings.TrimPrefix(o.Off, "--"),
			fishQuoted("The opposite of "+o.long()+"."))
	}
}

// fishQuoted quotes text for fish.
func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
