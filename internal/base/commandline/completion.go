package commandline

import (
	"errors"
	"fmt"
	"strings"
)

// Shells are the shells for which there is a completion.
var Shells = []string{"bash", "zsh", "fish"}

// Program is a program whose first argument is the name of one of its commands.
type Program struct {
	Name     string
	About    string
	Commands []*Command
	// Alias is another name of the program. Under it the program is its first command.
	Alias string
	// For the man page: paragraphs after the commands, with their headings; and the footer.
	Sections []Section
	Footer   string
}

// Completion is a script with which a shell completes the program's command lines.
func (p *Program) Completion(shell string) (string, error) {
	var b strings.Builder
	switch shell {
	case "bash":
		p.bash(&b)
	case "zsh":
		p.zsh(&b)
	case "fish":
		p.fish(&b)
	case "":
		return "", errors.New("for which shell? bash, zsh or fish is needed")
	default:
		return "", fmt.Errorf("there is no completion for %q: bash, zsh or fish is needed", shell)
	}
	return b.String(), nil
}

// names are the names of the visible options, separated by spaces.
func (t Table) names() string {
	var all []string
	for _, o := range t {
		if o.Hidden {
			continue
		}
		all = append(all, o.shown()...)
		if o.Off != "" {
			all = append(all, o.Off)
		}
	}
	return strings.Join(all, " ")
}

// taking are all names of the options that this many arguments follow.
func (t Table) taking(values int) string {
	var all []string
	for _, o := range t {
		if o.Values() == values {
			all = append(all, o.Names...)
		}
	}
	return strings.Join(all, " ")
}

func (p *Program) words() string {
	var all []string
	for _, c := range p.Commands {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}
