package launch

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/gorovod/gorovod/internal/logging"
)

// report is what horovod.run hears of a job that has not gone well, besides the exit
// code, which may be that of a rank as well.
type report struct {
	// Refused says that nothing was started, since the arguments make no sense.
	Refused bool `json:"refused"`
	// Text is why the job has failed; empty where nobody knows more than the exit code.
	Text string `json:"text"`
	// Stderr holds the last lines of the stderr of the process that has failed first.
	Stderr string `json:"stderr"`
}

// reportOption names the file that a report goes to. It is looked for before the options
// are parsed, as what is wrong with them is to be reported.
const reportOption = "--report="

// reportFile is that file, empty for none.
func reportFile(args []string) string {
	for _, a := range args {
		if path, ok := strings.CutPrefix(a, reportOption); ok {
			return path
		}
		if a == "--" {
			break
		}
	}
	return ""
}

// write hands the report over, where somebody wants it.
func (r report) write(name, path string) {
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
