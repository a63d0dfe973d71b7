package output

import (
	"strings"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
)

// exceptionLine is the first line of an exception below its stack, such as "ValueError: no such file" or
// "KeyboardInterrupt".
var exceptionLine = lazyregexp.New(`^[A-Za-z_][\w.]*(:|$)`)

// sourceLine names a file with an error of syntax. Other lines of a stack go on with ", in".
var sourceLine = lazyregexp.New(`^  File "(.+)", line (\d+)$`)

// PythonException finds the exception that ended a Python process, in the last lines of its stderr: what stands below
// the last line of a stack. It is empty if there is none. A process that ends before it has told anything, for
// instance because of an error of syntax or a missing module, says it there only.
func PythonException(stderr string) string {
	lines := strings.Split(stderr, "\n")
	at := len(lines) - 1
	for at >= 0 && !strings.HasPrefix(lines[at], `  File "`) {
		at--
	}
	if at < 0 {
		return ""
	}
	for _, line := range lines[at+1:] {
		switch {
		case strings.HasPrefix(line, " "):
			continue
		case !exceptionLine().MatchString(line):
			return ""
		}
		if source := sourceLine().FindStringSubmatch(lines[at]); source != nil {
			line += " in " + source[1] + ":" + source[2]
		}
		return line
	}
	return ""
}
