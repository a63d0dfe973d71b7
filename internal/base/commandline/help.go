package commandline

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	helpWidth  = 80
	helpColumn = 32 // the column where an option's help begins
)

// otherOptions is the heading of options without one.
const otherOptions = "Options"

// WriteHelp prints the text for --help. name is the name by which the command was called.
func (c *Command) WriteHelp(w io.Writer, name string) {
	fmt.Fprintf(w, "usage: %s\n\n%s\n", strings.TrimSpace(name+" "+c.Usage), wrap(c.About+".", 0, 0))
	if c.Detail != "" {
		for _, paragraph := range strings.Split(c.Detail, "\n\n") {
			fmt.Fprintf(w, "\n%s\n", wrap(paragraph, 0, 0))
		}
	}
	if len(c.Examples) > 0 {
		fmt.Fprint(w, "\nExamples:\n")
	}
	for _, e := range c.Examples {
		fmt.Fprintf(w, "  %s\n%s\n", e.as(name), wrap(e.About, 6, 6))
	}
	c.Options().groups(func(title string, options []Option) {
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, o := range options {
			fmt.Fprintln(w, o.row())
		}
	})
}

// as is the example's line with another name of the program.
func (e Example) as(name string) string {
	if rest, ok := strings.CutPrefix(e.Line, "horovodrun "); ok && name == "gorovod run" {
		return name + " " + rest
	}
	return e.Line
}

// groups calls f for each heading, in the order of its first option.
func (t Table) groups(f func(title string, options []Option)) {
	var titles []string
	groups := map[string][]Option{}
	for _, o := range t {
		if o.Hidden {
			continue
		}
		title := o.Group
		if title == "" {
			title = otherOptions
		}
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		groups[title] = append(groups[title], o)
	}
	for _, title := range titles {
		f(title, groups[title])
	}
}

// row is the option's part of the help.
func (o *Option) row() string {
	left := "  " + o.spelling()
	if o.Help == "" {
		return left
	}
	if len(left) > helpColumn-2 {
		return left + "\n" + wrap(o.Help, helpColumn, helpColumn)
	}
	return left + strings.TrimPrefix(wrap(o.Help, helpColumn, helpColumn), strings.Repeat(" ", len(left)))
}

// spelling shows how the option may be written, such as -np, --num-proc N.
func (o *Option) spelling() string {
	names := strings.Join(o.shown(), ", ")
	switch {
	case o.Off == "--no-"+strings.TrimPrefix(o.long(), "--"):
		names = strings.Replace(names, "--", "--[no-]", 1)
	case o.Off != "":
		names += ", " + o.Off
	}
	return strings.TrimSpace(names + " " + o.Value)
}

// shown are the names, without those that differ from another name only by a dash.
func (o *Option) shown() (names []string) {
	for _, name := range o.Names {
		if !slices.Contains(names, strings.TrimPrefix(name, "-")) || o.long() == name {
			names = append(names, name)
		}
	}
	return names
}

// wrap breaks text into lines of helpWidth. The first line is indented by first, the others by rest.
func wrap(text string, first, rest int) string {
	var b strings.Builder
	indent := first
	line := ""
	flush := func() {
		b.WriteString(strings.Repeat(" ", indent) + line)
		indent, line = rest, ""
	}
	for _, word := range strings.Fields(text) {
		if line != "" && indent+len([]rune(line))+1+len([]rune(word)) > helpWidth {
			flush()
			b.WriteByte('\n')
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
	return b.String()
}
