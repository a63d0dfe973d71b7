package flags

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// JSON is the options and the command as JSON, by the options' names, for horovod.runner.launch.parse_args. So only
// this package has the table of options. An option that was not given is null, or empty. A number that may have
// decimals always has them, so that Python reads 20 ms as a float.
func (f *Flags) JSON() (string, error) {
	parser, err := kong.New(f)
	if err != nil {
		return "", err
	}
	values := map[string]any{"command": f.Command}
	for _, flag := range parser.Model.Flags {
		if !flag.Hidden && flag.Name != "help" {
			values[strings.ReplaceAll(flag.Name, "-", "_")] = decimal(flag.Target.Interface())
		}
	}
	text, err := json.Marshal(values)
	return string(text) + "\n", err
}

func decimal(value any) any {
	x, ok := value.(*float64)
	if !ok || x == nil {
		return value
	}
	text := strconv.FormatFloat(*x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.RawMessage(text)
}

// RefusedValue is what stands in place of parsed if an option's value is out of its range.
func RefusedValue(why RangeError) string {
	text, _ := json.Marshal(map[string]string{"out_of_range": string(why)}) // a map of strings cannot fail
	return string(text) + "\n"
}
