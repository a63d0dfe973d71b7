package flags

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// checkOpposites refuses an option together with the one that negates it. Either may be left over from an older script,
// so the user's intention is unclear. Horovod's parser refuses them, too.
func checkOpposites(parser *kong.Kong, options []string) error {
	type meaning struct {
		flag string
		on   bool
	}
	meanings := map[string]meaning{}
	for _, flag := range parser.Model.Flags {
		no := flag.Tag.Negatable
		if no == "" {
			continue
		}
		if no == "_" { // kong's name for the usual negation
			no = "no-" + flag.Name
		}
		meanings["--"+flag.Name] = meaning{flag.Name, true}
		meanings["--"+no] = meaning{flag.Name, false}
	}
	given := map[meaning]string{} // as the user spelt it
	for _, option := range options {
		name, value, inline := strings.Cut(option, "=")
		m, ok := meanings[name]
		if !ok {
			continue
		}
		if yes, err := strconv.ParseBool(value); inline && err == nil && !yes {
			m.on = !m.on
		}
		given[m] = option
		if other, both := given[meaning{m.flag, !m.on}]; both {
			return fmt.Errorf("%s and %s: one of them", other, option)
		}
	}
	return nil
}
