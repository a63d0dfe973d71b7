package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Names from a user or another process cannot send control sequences to the launcher's terminal.
func TestNamesDoNotReachTheTerminalRaw(t *testing.T) {
	const evil, shown = "a\x1b[31m\rb\x07", `a\x1b[31m\rb\a`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hosts.sh"), []byte("#!/bin/sh\nprintf 'bad\\033[31m host\\n'\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"command":   {127, []string{"-np", "1", evil}},
		"hosts":     {2, []string{"-np", "1", "-H", evil, "true"}},
		"file":      {1, []string{"-np", "1", "--output-filename", "/proc/" + evil, "true"}},
		"config":    {2, []string{"-np", "1", "--config-file", "/none/" + evil, "true"}},
		"discovery": {1, []string{"-np", "1", "--host-discovery-script", filepath.Join(dir, "hosts.sh"), "true"}},
		"report":    {3, []string{"-np", "3", self()}},
	} {
		l := launched(t, program("raises", "REPORT="+evil, "DIR="+t.TempDir(), "GO=at once"), c.args...)
		l.expect(c.code)
		for line := range strings.Lines(l.stderr.String()) {
			if !strings.HasPrefix(line, "[") && strings.ContainsAny(line, "\x1b\r\x07") {
				t.Errorf("%s: %q", name, line)
			}
		}
		if !strings.Contains(l.stderr.String(), `\x1b[31m`) {
			t.Errorf("%s: it does not show %s: %s", name, shown, &l.stderr)
		}
	}
}
