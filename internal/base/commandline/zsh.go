package commandline

import (
	"fmt"
	"strings"
)

// zsh writes a function for each command, and one that chooses between them.
func (p *Program) zsh(b *strings.Builder) {
	fmt.Fprintf(b, "#compdef %s %s\ncompdef _%s %s %s 2>/dev/null\n", p.Name, p.Alias, p.Name, p.Name, p.Alias)
	fmt.Fprintf(b, "# Completion for zsh. It is made by: %s completion zsh\n", p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(b, "\n_%s_%s() {\n  _arguments -S -A '-*'", p.Name, c.Name)
		for _, o := range c.Options() {
			if !o.Hidden {
				o.zsh(b)
			}
		}
		switch {
		case c.Runs:
			b.WriteString(" \\\n    '(-)1:command:_command_names -e' \\\n    '*::arguments:_normal'")
		case len(c.Words) > 0:
			fmt.Fprintf(b, " \\\n    '1:argument:(%s)'", strings.Join(c.Words, " "))
		}
		b.WriteString("\n}\n")
	}
	fmt.Fprintf(b, "\n_%s() {\n  if [[ ${service:-$words[1]:t} == %s ]]; then\n", p.Name, p.Alias)
	fmt.Fprintf(b, "    _%s_%s\n    return\n  fi\n", p.Name, p.Commands[0].Name)
	b.WriteString("  if ((CURRENT == 2)); then\n    local -a commands=(\n")
	for _, c := range p.Commands {
		fmt.Fprintf(b, "      %s\n", Quote(c.Name+":"+c.About))
	}
	b.WriteString("    )\n    _describe command commands\n    return\n  fi\n")
	b.WriteString("  local command=$words[2]\n  shift words\n  ((CURRENT--))\n")
	fmt.Fprintf(b, "  (( $+functions[_%s_$command] )) && _%s_$command\n}\n\n", p.Name, p.Name)
	fmt.Fprintf(b, "[[ $funcstack[1] == _%s ]] && _%s\n", p.Name, p.Name)
}

// zsh writes what _arguments needs for each name.
func (o *Option) zsh(b *strings.Builder) {
	help := strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(o.Help)
	names := o.shown()
	exclude := strings.Join(names, " ")
	if o.Off != "" {
		exclude += " " + o.Off
	}
	if o.Many {
		exclude = ""
	}
	for _, name := range names {
		form := ""
		switch {
		case o.Value == "":
		case strings.HasPrefix(name, "--"):
			form = "="
		case len(name) == 2:
			form = "+"
		}
		spec := name + form + "[" + help + "]"
		if o.Many {
			spec = "*" + spec
		} else {
			spec = "(" + exclude + ")" + spec
		}
		for _, value := range strings.Fields(o.Value) {
			spec += ":" + strings.ReplaceAll(value, ":", `\:`) + ":" + o.zshAction()
		}
		fmt.Fprintf(b, " \\\n    %s", Quote(spec))
	}
	if o.Off != "" {
		fmt.Fprintf(b, " \\\n    %s", Quote("("+exclude+")"+o.Off+"[The opposite of "+o.long()+".]"))
	}
}

func (o *Option) zshAction() string {
	switch o.offers() {
	case files:
		return "_files"
	case folders:
		return "_files -/"
	case programs:
		return "_command_names -e"
	case choices:
		return "(" + strings.Join(o.Words, " ") + ")"
	}
	return " "
}
