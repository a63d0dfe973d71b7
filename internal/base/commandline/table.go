package commandline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/spelling"
)

// Table is the options of a command.
type Table []Option

// With returns the table with more names, for options that the caller handles itself.
func (t Table) With(names ...string) Table {
	t = slices.Clone(t)
	for _, name := range names {
		t = append(t, Option{Names: []string{name}})
	}
	return t
}

// Find is the option with exactly this name; the name of its opposite counts, too. Nil for none.
func (t Table) Find(name string) *Option {
	for i := range t {
		if slices.Contains(t[i].Names, name) || t[i].Off == name && name != "" {
			return &t[i]
		}
	}
	return nil
}

// Expand returns arg with the name of its option spelt out, by the rule of Python's argparse: the beginning of a name
// will do if only one option has it. If Horovod's options alone leave one candidate, that one counts, so that Horovod's
// command lines keep their meaning. A long option with one dash gets two. An arg that is no option, or is a letter with
// its value, such as -p22, stays as it is.
func (t Table) Expand(arg string) (string, error) {
	name, value, inline := strings.Cut(arg, "=")
	if len(name) < 2 || name[0] != '-' || name == "--" {
		return arg, nil
	}
	if t.Find(name) == nil {
		full, err := t.complete(name)
		if err != nil {
			return "", err
		}
		if full == "" {
			return arg, nil
		}
		name = full
	}
	if len(name) > 2 && name[1] != '-' {
		name = t.Find(name).long()
	}
	if inline {
		name += "=" + value
	}
	return name, nil
}

// long is the name with two dashes.
func (o *Option) long() string {
	for _, name := range o.Names {
		if strings.HasPrefix(name, "--") {
			return name
		}
	}
	return ""
}

// complete finds the one option that an abbreviation stands for. It returns "" for a letter with its value.
func (t Table) complete(short string) (string, error) {
	letter := ""
	if short[1] != '-' && t.Find(short[:2]) != nil {
		letter = short[:2]
	}
	for _, own := range []bool{false, true} {
		found, meanings := []string{}, map[string]bool{}
		if letter != "" {
			found, meanings[letter] = append(found, letter), true
		}
		for _, o := range t {
			if o.Own != own || o.Hidden {
				continue
			}
			for _, name := range append(slices.Clone(o.Names), o.Off) {
				if strings.HasPrefix(name, short) {
					found = append(found, name)
					meanings[o.Names[0]+fmt.Sprint(name == o.Off)] = true
				}
			}
		}
		switch {
		case len(found) == 1 && letter != "":
			continue
		case len(meanings) == 1:
			return found[0], nil
		case len(meanings) > 1:
			return "", fmt.Errorf("%s is ambiguous: it could mean %s", short, strings.Join(found, ", "))
		}
	}
	if letter != "" {
		return "", nil
	}
	return "", t.unknown(short)
}

// unknown is the error for a name that no option has.
func (t Table) unknown(name string) error {
	var names []string
	for _, o := range t {
		if o.Hidden {
			continue
		}
		for _, n := range append(slices.Clone(o.Names), o.Off) {
			if len(n) > 2 && n[1] != '-' && strings.HasPrefix(name, n) {
				return fmt.Errorf("unknown option %s: write %s %s", shown(name), n, shown(name[len(n):]))
			}
			names = append(names, n)
		}
	}
	return errors.New("unknown option " + shown(name) + spelling.DidYouMean(name, names))
}

// shown is a word in a form that is safe for a terminal.
func shown(word string) string {
	if quoted := strconv.Quote(word); quoted != `"`+word+`"` {
		return quoted
	}
	return word
}
