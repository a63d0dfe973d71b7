package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// GPU prints which GPUs a process of a Python can use. This program cannot find out itself: it has no C, and not that
// Python's libraries.
func GPU(w io.Writer, python string, environ []string) error {
	cmd := exec.Command(python, "-m", "horovod._gpu_report")
	var said bytes.Buffer
	cmd.Env, cmd.Stderr = environ, &said
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no Python called %s: --python PROGRAM names another one", python)
	case err != nil:
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return fmt.Errorf("%s cannot say what it has (%w: %s): is gorovod's wheel installed there?", python, err,
			lines[len(lines)-1])
	}
	_, err = w.Write(out)
	return err
}
