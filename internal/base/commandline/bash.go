package commandline

import (
	"fmt"
	"strings"
)

// bashWalk finds out where in the line the cursor is. Bash cuts words also at = and :, so bashWalk joins the pieces
// again, and notes the number of each word's first piece.
const bashWalk = `  local cur word="" rest=$COMP_LINE trimmed i at=1 end command
  local -a words=() first=()
  COMPREPLY=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    trimmed=${rest#"${rest%%[![:space:]]*}"}
    if ((i == 0)) || [[ $trimmed != "$rest" ]]; then
      words+=("${COMP_WORDS[i]}") first+=("$i")
    else
      words[${#words[@]}-1]+=${COMP_WORDS[i]}
    fi
    rest=${trimmed#"${COMP_WORDS[i]}"}
  done
  end=$((${#words[@]} - 1)) cur=${words[end]}
`

const bashOptions = `  while ((at < end)); do
    word=${words[at]}
    case $word in
      --) ((at++)); break ;;
      -*=*) ((at++)) ;;
      -*)
        if [[ " $two " == *" $word "* ]]; then ((at += 3))
        elif [[ " $one " == *" $word "* ]]; then ((at += 2))
        else ((at++))
        fi ;;
      *) break ;;
    esac
  done
  if ((at > end)); then
    word=${words[end-1]}
  elif ((at == end)) && [[ $cur == -*=* && $word != -- ]]; then
    word=${cur%%=*} cur=${cur#*=}
  elif ((at == end)) && [[ $cur == -* && $word != -- ]]; then
    COMPREPLY=($(compgen -W "$all" -- "$cur"))
    return
  elif [[ -n $runs ]]; then
    if declare -F _command_offset >/dev/null; then
      _command_offset "${first[at]}"
    elif ((at == end)); then
      COMPREPLY=($(compgen -c -- "$cur"))
    else
      COMPREPLY=($(compgen -f -- "$cur"))
      compopt -o filenames
    fi
    return
  else
    COMPREPLY=($(compgen -W "$arguments" -- "$cur"))
    return
  fi
`

// bash writes a function for each program. It has the options of all commands.
func (p *Program) bash(b *strings.Builder) {
	fmt.Fprintf(b, "# Completion of %s and %s for bash. It is made by: %s completion bash\n", p.Name, p.Alias, p.Name)
	fmt.Fprintf(b, "_%s() {\n%s", p.Name, bashWalk)
	fmt.Fprintf(b, `  command=%s
  if [[ ${words[0]##*/} == %s ]]; then
    if ((end == 1)); then
      COMPREPLY=($(compgen -W %s -- "$cur"))
      return
    fi
    command=${words[1]} at=2
  fi
  local all="" one="" two="" arguments="" runs=""
  case $command in
`, p.Commands[0].Name, p.Name, Quote(p.words()+" --help --licenses --version"))
	for _, c := range p.Commands {
		t := c.Options()
		fmt.Fprintf(b, "    %s)\n      all=%s\n      one=%s\n      two=%s\n",
			c.Name, Quote(t.names()), Quote(t.taking(1)), Quote(t.taking(2)))
		if c.Runs {
			b.WriteString("      runs=1\n")
		}
		if len(c.Words) > 0 {
			fmt.Fprintf(b, "      arguments=%s\n", Quote(strings.Join(c.Words, " ")))
		}
		b.WriteString("      ;;\n")
	}
	fmt.Fprintf(b, "  esac\n%s", bashOptions)
	b.WriteString("  case \"$command $word\" in\n")
	for _, c := range p.Commands {
		for _, o := range c.Options() {
			var patterns []string
			for _, name := range o.Names {
				patterns = append(patterns, Quote(c.Name+" "+name))
			}
			action := ""
			switch o.offers() {
			case files:
				action = "COMPREPLY=($(compgen -f -- \"$cur\")); compopt -o filenames"
			case folders:
				action = "COMPREPLY=($(compgen -d -- \"$cur\")); compopt -o filenames"
			case programs:
				action = "COMPREPLY=($(compgen -c -- \"$cur\"))"
			case choices:
				words := Quote(strings.Join(o.Words, " "))
				action = fmt.Sprintf("COMPREPLY=($(compgen -W %s -- \"$cur\"))", words)
			default:
				continue
			}
			fmt.Fprintf(b, "    %s) %s ;;\n", strings.Join(patterns, "|"), action)
		}
	}
	fmt.Fprintf(b, "  esac\n}\ncomplete -F _%s %s %s\n", p.Name, p.Name, p.Alias)
}
