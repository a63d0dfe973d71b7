package spawn

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/regular"
	"golang.org/x/sys/unix"
)

// Exit codes of shells for commands that cannot run.
const (
	NotExecutableCode = 126
	NotFoundCode      = 127
)

// FindCommand looks a command up in the directories of searchPath as a shell does.
// On error, code is what a shell would exit with.
func FindCommand(name, searchPath string) (path string, code int, err error) {
	if strings.Contains(name, "/") {
		code, err = executable(name)
		return name, code, err
	}
	code, err = NotFoundCode, notFound(name)
	if name == "" {
		return "", code, fmt.Errorf("the command is empty")
	}
	for _, dir := range filepath.SplitList(searchPath) {
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
		if c == NotFoundCode && regular.Is(path) {
			return "", c, e // a script whose interpreter is missing
		}
		if c == NotExecutableCode && code == NotFoundCode {
			if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
				continue
			}
			code, err = c, e
		}
	}
	return "", code, err
}

// notFound is the error for a name that is in no directory of the PATH. It also looks for the file in the current
// directory, which many users mean.
func notFound(name string) error {
	advice := ""
	switch {
	case !regular.Is(name):
	case strings.HasSuffix(name, ".py"):
		advice = ", but there is a file of that name here: write python " + commandline.Join([]string{name})
	default:
		advice = ", but there is a file of that name here: write " + commandline.Join([]string{"./" + name})
	}
	return fmt.Errorf("%s: command not found%s", name, advice)
}

// executable says why a file cannot be executed.
func executable(path string) (code int, err error) {
	info, err := os.Stat(path)
	switch {
	case os.IsPermission(err):
		return NotExecutableCode, fmt.Errorf("%s: permission denied", path)
	case err != nil:
		return NotFoundCode, fmt.Errorf("%s: no such file", path)
	case info.IsDir():
		return NotExecutableCode, fmt.Errorf("%s: is a directory", path)
	case unix.Access(path, unix.X_OK) != nil:
		return NotExecutableCode, fmt.Errorf("%s: permission denied: it is not executable", path)
	}
	interpreter := ""
	if info.Mode().IsRegular() {
		interpreter = scriptInterpreter(path)
	}
	if interpreter == "" {
		return 0, nil
	}
	info, err = os.Stat(interpreter)
	switch {
	case os.IsNotExist(err):
		return NotFoundCode, fmt.Errorf("%s: the interpreter that its first line names, %q, is not there", path,
			interpreter)
	case err != nil || info.IsDir() || unix.Access(interpreter, unix.X_OK) != nil:
		return NotExecutableCode, fmt.Errorf("%s: the interpreter that its first line names, %q, cannot be executed",
			path, interpreter)
	}
	return 0, nil
}

// scriptInterpreter is the file that the kernel runs for a script with #!; "" for other programs, and for unreadable
// ones.
func scriptInterpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256) // as much as the kernel looks at
	n, _ := io.ReadFull(f, head)
	line, ok := strings.CutPrefix(string(head[:n]), "#!")
	if !ok {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	// Only blanks end it: the \r of a file from Windows belongs to the name.
	name, _, _ := strings.Cut(strings.Trim(line, " \t"), " ")
	name, _, _ = strings.Cut(name, "\t")
	return name
}
