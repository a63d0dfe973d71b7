package chaos

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// journal is the contents of one worker's journal.
type journal struct {
	name     string
	worker   int
	pid      int
	host     string
	rank     int           // in its last epoch
	size     int           // of its last epoch
	newest   int64         // the number of its newest commit
	at       time.Time     // of its newest commit
	slowest  time.Duration // the longest time from one commit to the next
	commits  map[int64]string
	steps    []time.Time // the first of each epoch
	undone   []string    // commits that it held and that were lost later
	begun    []moment    // the begin of each world, with the commit from which it began
	held     []moment    // commits that were made on all ranks
	done     string      // its result at the end
	accuracy string

	read int64 // bytes
	over bool  // the worker has ended
}

// moment is the time of an event, and the commit that it is about.
type moment struct {
	commit int64
	at     time.Time
}

// journals reads all that is new in the journals. If a worker was killed, its last line
// may be incomplete.
func (j *job) journals() []*journal {
	dir := filepath.Join(j.dir, "journals")
	files, err := os.ReadDir(dir)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, f := range files {
		if j.known[f.Name()] == nil {
			w := &journal{name: "worker " + f.Name(), newest: -1, commits: map[int64]string{}}
			fmt.Sscanf(f.Name(), "%d.%d", &w.worker, &w.pid)
			j.known[f.Name()] = w
			j.all = append(j.all, w)
		}
	}
	for _, w := range j.all {
		if !w.over {
			w.over = !j.alive(w)
			if err := w.more(filepath.Join(dir, strings.TrimPrefix(w.name, "worker "))); err != nil {
				j.t.Fatal(err)
			}
			if w.at.After(j.last) {
				j.last = w.at
			}
		}
	}
	return j.all
}

// more reads the new lines.
func (w *journal) more(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, w.read, 1<<40))
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	w.read += int64(len(text))
	for line := range strings.Lines(string(text)) {
		w.line(line)
	}
	return nil
}

func (w *journal) line(line string) {
	var n, step, at int64
	var text string
	switch verb, rest, _ := strings.Cut(line, " "); verb {
	case "host":
		w.host = strings.TrimSpace(rest)
	case "from":
		fmt.Sscanf(rest, "%d commit %d rank %d of %d at %d", &step, &n, &w.rank, &w.size, &at)
		w.begun = append(w.begun, moment{n, time.UnixMicro(at)})
		if n < w.newest || step < 5*(w.newest+1) {
			w.undone = append(w.undone, fmt.Sprintf("it held commit %d, and went on from step %d, commit %d",
				w.newest, step, n))
		}
	case "step":
		fmt.Sscanf(rest, "%d at %d", &step, &at)
		w.steps = append(w.steps, time.UnixMicro(at))
	case "commit":
		fmt.Sscanf(rest, "%d %s at %d", &n, &text, &at)
		if n <= w.newest {
			w.undone = append(w.undone, fmt.Sprintf("commit %d follows %d", n, w.newest))
		}
		if !w.at.IsZero() {
			w.slowest = max(w.slowest, time.UnixMicro(at).Sub(w.at))
		}
		w.newest, w.at = n, time.UnixMicro(at)
		w.commits[n] = text
	case "held":
		fmt.Sscanf(rest, "%d at %d", &n, &at)
		w.held = append(w.held, moment{n, time.UnixMicro(at)})
	case "done":
		fmt.Sscan(rest, &step, &w.done, &w.accuracy)
	}
}
