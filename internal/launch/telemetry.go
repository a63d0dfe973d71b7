package launch

import (
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/otlp"
)

// openTelemetry begins to tell a collector of OpenTelemetry what becomes of the job, if the user asks for it; else it
// returns nil.
func (f *flags) openTelemetry(name string) (*otlp.Job, error) {
	o, on, err := otlp.From(os.Getenv)
	if err != nil || !on {
		return nil, err
	}
	o.Warn = func(text string) { warn(name, text) }
	return otlp.Start(o, filepath.Base(f.command[0])), nil
}
