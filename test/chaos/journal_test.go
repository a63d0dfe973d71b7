package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// journal is what one worker has written.
type journal struct {
	name    string
	worker  int
	pid     int
	host    string
	rank    int   // in its last epoch
	size    int   // of its last epoch
	newest  int64 // commit
	commits map[int64]string
	steps   []time.Time // the first of each epoch
	undone  []string    // commits that it held, and that were gone later
	done    string
}

// journals reads all that there is. Of a worker that was killed the last line may be cut.
func (j *job) journals() (all []journal) {
	names, _ := filepath.Glob(filepath.Join(j.dir, "journals", "*"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			j.t.Fatal(err)
		}
		w := journal{name: "worker " + filepath.Base(name), newest: -1, commits: map[int64]string{}}
		fmt.Sscanf(filepath.Base(name), "%d.%d", &w.worker, &w.pid)
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, "\n") {
				w.read(line)
			}
		}
		all = append(all, w)
	}
	return all
}

func (w *journal) read(line string) {
	var n, step, at int64
	var text string
	switch verb, rest, _ := strings.Cut(line, " "); verb {
	case "host":
		w.host = strings.TrimSpace(rest)
	case "from":
		fmt.Sscanf(rest, "%d commit %d rank %d of %d at %d", &step, &n, &w.rank, &w.size, &at)
		if n < w.newest || step < 5*(w.newest+1) {
			w.undone = append(w.undone, fmt.Sprintf("it held commit %d, and went on from step %d, commit %d", w.newest, step, n))
		}
	case "step":
		fmt.Sscanf(rest, "%d at %d", &step, &at)
		w.steps = append(w.steps, time.UnixMicro(at))
	case "commit":
		fmt.Sscan(rest, &n, &text)
		if n <= w.newest {
			w.undone = append(w.undone, fmt.Sprintf("commit %d follows %d", n, w.newest))
		}
		w.newest = n
		w.commits[n] = text
	case "done":
		fmt.Sscan(rest, &step, &w.done)
	}
}
