package launch

import (
	"encoding/json"
	"strings"

	"github.com/alecthomas/kong"
)

// parsed is the options and the command as JSON, by the options' names, for horovod.runner.launch.parse_args. So only
// this package has the table of options. An option that was not given is null, or empty.
func (f *flags) parsed() (string, error) {
	parser, err := kong.New(f)
	if err != nil {
		return "", err
	}
	values := map[string]any{"command": f.command}
	for _, flag := range parser.Model.Flags {
		if !flag.Hidden && flag.Name != "help" {
			values[strings.ReplaceAll(flag.Name, "-", "_")] = flag.Target.Interface()
		}
	}
	text, err := json.Marshal(values)
	return string(text) + "\n", err
}
