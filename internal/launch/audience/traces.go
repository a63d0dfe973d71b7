package audience

import (
	"path/filepath"

	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/observe/otlp"
)

// openTraces begins to report the job of a program to a collector of OpenTelemetry, if the user asks for that;
// otherwise it returns nil. warn is called, on any goroutine, if the collector does not take the report.
func openTraces(f *flags.Flags, program string, warn func(text string)) (*otlp.Job, error) {
	o, on, err := otlp.From(f.Lookup)
	if err != nil || !on {
		return nil, err
	}
	o.Warn = warn
	return otlp.Start(o, filepath.Base(program)), nil
}
