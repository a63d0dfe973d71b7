package launch

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/logging"
)

// show prints the requested text, and returns the exit code.
func show(name, text string) int {
	if _, err := io.WriteString(os.Stdout, text); err != nil {
		logging.Print(slog.LevelError, name, err.Error())
		return 1
	}
	return 0
}

// misspeltVariables lists the variables of an environment whose names are misspelt, with those that were meant. Ranks
// do not repeat it.
func misspeltVariables(environ []string) []string {
	var names []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	return config.Misspelt(names)
}
