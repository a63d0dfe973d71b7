package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Exit codes of shells for commands that cannot be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// findCommand looks a command up as a shell does. On error, code is what a
// shell would exit with.
func findCommand(name string) (path string, code int, err error) {
	if strings.Contains(name, "/") {
		code, err = executable(name)
		return name, code, err
	}
	code, err = exitNotFound, fmt.Errorf("%s: command not found", name)
	if name == "" {
		return "", code, fmt.Errorf("the command is empty")
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if dir == "" {
			dir = "."
		}
		path := filepath.Join(dir, name)
		if !strings.Contains(path, "/") {
			path = "./" + path
		}
		c, e := executable(path)
		if e == nil {
			return path, 0, nil
		}
		if c == exitNotExecutable && code == exitNotFound {
			if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
				continue
			}
			code, err = c, e
		}
	}
	return "", code, err
}

func executable(path string) (code int, err error) {
	info, err := os.Stat(path)
	switch {
	case os.IsPermission(err):
		return exitNotExecutable, fmt.Errorf("%s: permission denied", path)
	case err != nil:
		return exitNotFound, fmt.Errorf("%s: no such file", path)
	case info.IsDir():
		return exitNotExecutable, fmt.Errorf("%s: is a directory", path)
	case unix.Access(path, unix.X_OK) != nil:
		return exitNotExecutable, fmt.Errorf("%s: permission denied: it is not executable", path)
	}
	return 0, nil
}
