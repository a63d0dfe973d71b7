package launch

import (
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/otlp"
)

// openTelemetry begins to report the job to a collector of OpenTelemetry, if the user asks for that; otherwise it
// returns nil.
func (f *flags) openTelemetry(name string) (*otlp.Job, error) {
	o, on, err := otlp.From(os.Getenv)
	if err != nil || !on {
		return nil, err
	}
	o.Warn = func(text string) { warn(name, text) }
	return otlp.Start(o, filepath.Base(f.command[0])), nil
}
