package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// showLimit is how long the program that opens a picture may take to pass it on to another program.
const showLimit = 10 * time.Second

// show lets the desktop open a file. It does not wait until the user has seen it.
func show(ctx context.Context, file, system string, getenv func(string) string) error {
	viewer := "xdg-open"
	if system == "darwin" {
		viewer = "open"
	} else if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return errors.New("there is no screen here: neither DISPLAY nor WAYLAND_DISPLAY is set")
	}
	path, err := exec.LookPath(viewer)
	if err != nil {
		return fmt.Errorf("%s is not installed (Debian: xdg-utils)", viewer)
	}
	if file, err = filepath.Abs(file); err != nil { // a relative name may begin with a dash
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, showLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, file)
	cmd.WaitDelay = time.Second // the picture's viewer may hold the output open
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, exec.ErrWaitDelay):
		return nil // the program, or one that it started, shows the picture
	case err != nil:
		return fmt.Errorf("%s: %w: %s", viewer, err, strings.TrimSpace(string(out)))
	}
	return nil
}
