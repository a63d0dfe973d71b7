package commandline

import (
	"fmt"
	"regexp"
	"strings"
)

// Markdown is the reference of all commands as a page of the documentation, without its title. For each command it has
// the text of the help, with a table for each group of options.
func (p *Program) Markdown() string {
	var b strings.Builder
	for i, c := range p.Commands {
		name := p.Name + " " + c.Name
		fmt.Fprintf(&b, "\n## %s\n\n", name)
		if i == 0 && p.Alias != "" {
			fmt.Fprintf(&b, "`%s` is another name of this command.\n\n", p.Alias)
		}
		fmt.Fprintf(&b, "```\n%s\n```\n\n%s.\n", strings.TrimSpace(name+" "+c.Usage), markdown(c.About))
		if c.Detail != "" {
			for _, paragraph := range strings.Split(c.Detail, "\n\n") {
				fmt.Fprintf(&b, "\n%s\n", markdown(wrap(paragraph, 0, 0)))
			}
		}
		if len(c.Examples) > 0 {
			b.WriteString("\n| example | what it does |\n|---|---|\n")
		}
		for _, e := range c.Examples {
			fmt.Fprintf(&b, "| %s | %s |\n", code(e.Line), markdown(e.About))
		}
		c.Options().groups(func(title string, options []Option) {
			fmt.Fprintf(&b, "\n### %s: %s\n\n| option | meaning |\n|---|---|\n", name, title)
			for _, o := range options {
				fmt.Fprintf(&b, "| %s | %s |\n", code(o.spelling()), markdown(o.Help))
			}
		})
	}
	return b.String()
}

// typed matches text that a reader would type: options, variables and calls.
var typed = regexp.MustCompile(`--[a-z][a-z-]*[a-z](=[^\s),;]*)?|\$?[A-Z_]+(_[A-Z]+)+(=[^\s),;]*)?|hvd\.\w+\(\)`)

// markdown is text in a paragraph or a cell.
func markdown(text string) string {
	text = strings.NewReplacer("|", `\|`, "*", `\*`, "<", `\<`).Replace(text)
	return typed.ReplaceAllStringFunc(text, code)
}

// code marks text that a reader types as it is.
func code(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }
