package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/output"
)

// The report's file says why a job has failed. It says "refused" only if nothing was started, even if the options
// cannot be parsed.
func TestReports(t *testing.T) {
	for _, c := range []struct {
		args    string
		code    int
		refused bool
		says    string // "" for no report at all
	}{
		{"-np 1 true", 0, false, ""},
		{"-np 1 sh -c exit+2", 2, false, "root cause: rank 0 on host localhost (pid "},
		{"-np 1 sh -c kill+-9+$$", 137, false, "was killed by signal 9 (SIGKILL)"},
		{"-np 1 no-such-command", 127, false, "no-such-command: command not found"},
		{"-np 2 -H localhost:1 true", 2, true, "only 1 slot "},
		{"-np 1 --nonsense true", 2, true, "--nonsense"},
		{"-np none true", 2, true, "none"},
		{"-np 1 -- true --report=elsewhere", 0, false, ""},
		{"-np 1 --min-np 1 --reset-limit 0 sh -c exit+3", 3, false, "worker 0 on host localhost"},
		{"-np 1 --output-filename /dev/full true", 1, false, "/dev/full: not a directory"},
	} {
		path := filepath.Join(t.TempDir(), "report")
		args := []string{output.ReportOption + path}
		for _, a := range strings.Fields(c.args) {
			args = append(args, strings.ReplaceAll(a, "+", " "))
		}
		launched(t, nil, args...).expect(c.code)
		text, err := os.ReadFile(path)
		if c.says == "" {
			if err == nil {
				t.Errorf("%s: it reports %s", c.args, text)
			}
			continue
		}
		var r output.Report
		if err := json.Unmarshal(text, &r); err != nil || r.Refused != c.refused || !strings.Contains(r.Text, c.says) {
			t.Errorf("%s: it reports %s, %v", c.args, text, err)
		}
	}
}
