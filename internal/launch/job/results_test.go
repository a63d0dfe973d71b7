package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/spawn"
)

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
