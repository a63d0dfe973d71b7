package output

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/gorovod/gorovod/internal/base/logging"
)

// Report tells horovod.run about a job that has failed, besides the exit code, which may be a rank's.
type Report struct {
	// Refused says that nothing was started, because the arguments are invalid.
	Refused bool `json:"refused"`
	// Text says why the job has failed; empty if only the exit code is known.
	Text string `json:"text"`
	// Stderr holds the last lines of the stderr of the process that has failed first.
	Stderr string `json:"stderr"`
}

// ReportOption is the option with the report's file. The launcher looks for it before it parses the options, so that it
// can report their errors, too.
const ReportOption = "--report="

// ReportFile is that file, empty for none.
func ReportFile(args []string) string {
	for _, a := range args {
		if path, ok := strings.CutPrefix(a, ReportOption); ok {
			return path
		}
		if a == "--" {
			break
		}
	}
	return ""
}

// Write writes the report, if there is a file for it.
func (r Report) Write(name, path string) {
	if path == "" {
		return
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		logging.Print(slog.LevelError, name, fmt.Sprintf("tell horovod.run: %v", err))
	}
}
