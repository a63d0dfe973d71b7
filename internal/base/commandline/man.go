package commandline

import (
	"fmt"
	"strings"
)

// Section is a part of a man page.
type Section struct{ Title, Text string }

// Man is a page for man(1). The name is the program's, also if it is empty, or the alias's; the alias's page is that of
// the first command.
func (p *Program) Man(name string) (string, error) {
	if name == "" {
		name = p.Name
	}
	commands, about := p.Commands, p.About
	if name == p.Alias {
		commands, about = p.Commands[:1], p.Commands[0].About
	} else if name != p.Name {
		return "", fmt.Errorf("there is no page %q: %s or %s is needed", name, p.Name, p.Alias)
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made by: %s man\n", p.Name)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s\n", strings.ToUpper(name), roffQuoted(p.Footer))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", name, roff(about))
	for i, c := range commands {
		if i > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, ".B %s\n%s\n", roff(pageTitle(c, name, p.Alias)), roff(c.Usage))
	}
	for _, c := range commands {
		heading := strings.ToUpper(pageTitle(c, name, p.Alias))
		if len(commands) == 1 {
			heading = "DESCRIPTION"
		}
		fmt.Fprintf(&b, ".SH %s\n%s\n", roffQuoted(heading), roff(c.About+"."))
		if c.Detail != "" {
			for _, paragraph := range strings.Split(c.Detail, "\n\n") {
				fmt.Fprintf(&b, ".PP\n%s\n", roff(strings.Join(strings.Fields(paragraph), " ")))
			}
		}
		c.Options().groups(func(title string, options []Option) {
			fmt.Fprintf(&b, ".SS %s\n", roffQuoted(title))
			for _, o := range options {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(o.spelling()), roff(o.Help))
			}
		})
		if len(c.Examples) > 0 {
			b.WriteString(".SS Examples\n")
		}
		for _, e := range c.Examples {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(e.as(pageTitle(c, name, p.Alias))), roff(e.About))
		}
	}
	for _, s := range p.Sections {
		fmt.Fprintf(&b, ".SH %s\n%s\n", roffQuoted(s.Title), roff(s.Text))
	}
	return b.String(), nil
}

// pageTitle is the name of a command on the page of a program.
func pageTitle(c *Command, page, alias string) string {
	if page == alias {
		return alias
	}
	return page + " " + c.Name
}

// roff escapes text: dashes of options stay dashes, and no line can be a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "'", `\(aq`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func roffQuoted(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
