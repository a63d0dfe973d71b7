package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/spawn"
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

// At the end, files of results are named after the ranks; those of workers that have lost their places, after the
// workers.
func TestResultsOfElasticJobs(t *testing.T) {
	for _, c := range []struct {
		ranks map[int]int
		want  string
	}{
		{map[int]int{2: 0, 1: 1}, "0=2 1=1 worker.0=0"},
		{map[int]int{1: 0, 7: 1}, "0=1 worker.0=0 worker.2=2"}, // worker 7 has no file
		{nil, "0=0 1=1 2=2"},
	} {
		dir := t.TempDir()
		for id := range 3 {
			w := supervised{job: &Job{ResultDir: dir}, id: id}
			if err := w.open("", workerResults(id)); err != nil {
				t.Fatal(err)
			}
			w.Output(spawn.Results, []byte{byte('0' + id)})
			w.closeFiles()
		}
		if err := nameResults(dir, c.ranks, 3); err != nil {
			t.Fatal(err)
		}
		var got []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			text, _ := os.ReadFile(filepath.Join(dir, e.Name()))
			got = append(got, e.Name()+"="+string(text))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v, want %s", c.ranks, got, c.want)
		}
	}
	if err := nameResults("", nil, 3); err != nil {
		t.Error(err)
	}
}
