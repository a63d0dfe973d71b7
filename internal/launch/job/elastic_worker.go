package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// workerProcess is a worker of an elastic job while its command runs. Output prefixes and files have its number instead
// of a rank, because ranks change.
type workerProcess struct {
	supervised
	elastic *elasticJob
	opened  atomic.Bool // streams are set

	mu      sync.Mutex
	crew    spawn.Crew     // nil until the command is started
	pending syscall.Signal // a signal that came before the crew
}

// prepare makes its streams and files.
func (w *workerProcess) prepare() error {
	if err := w.open(w.directory(), workerResults(w.id)); err != nil {
		return err
	}
	w.opened.Store(true)
	return nil
}

// directory is the folder of its output with --output-filename; empty without.
func (w *workerProcess) directory() string {
	if w.job.OutputDir == "" {
		return ""
	}
	return filepath.Join(w.job.OutputDir, fmt.Sprintf("rank.%d", w.id))
}

// workerResults names a worker's file of results while its rank may change.
func workerResults(id int) string { return fmt.Sprintf("worker.%d", id) }

// nameResults names the files of results after the ranks of the last world, or after the workers if there was none.
func nameResults(dir string, ranks map[int]int, workers int) error {
	if dir == "" {
		return nil
	}
	if len(ranks) == 0 {
		ranks = make(map[int]int, workers)
		for id := range workers {
			ranks[id] = id
		}
	}
	for worker, rank := range ranks {
		err := os.Rename(filepath.Join(dir, workerResults(worker)), filepath.Join(dir, fmt.Sprint(rank)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// run starts the command by a crew.
func (w *workerProcess) run(c spawn.Crew, cmd spawn.Command) {
	w.mu.Lock()
	w.crew = c
	pending := w.pending
	w.mu.Unlock()
	c.Start(w.id, cmd, w)
	if pending != 0 {
		c.Signal(w.id, pending)
	}
}

// signal also reaches a command that is starting.
func (w *workerProcess) signal(sig syscall.Signal) {
	w.mu.Lock()
	c := w.crew
	if c == nil {
		w.pending = sig
	}
	w.mu.Unlock()
	if c != nil {
		c.Signal(w.id, sig)
	}
}

func (w *workerProcess) Started(pid int) {
	w.elastic.driver.Started(w.id, pid)
	w.job.tell("worker %d runs on %s with pid %d", w.id, w.host, pid)
}

func (w *workerProcess) Ended(e spawn.Outcome) {
	switch {
	case e.Err != nil:
		e.Code = max(1, e.Code)
		w.job.sayError("cannot start worker %d on host %s: %v", w.id, w.host, e.Err)
	case e.Lost != nil:
		w.elastic.driver.HostLost(w.host)
	}
	d := w.death(e)
	if d.Failed() && w.streams[spawn.Stderr] != nil {
		w.elastic.mu.Lock()
		w.elastic.shown[w.id] = w.streams[spawn.Stderr].Shown.Load()
		w.elastic.mu.Unlock()
	}
	w.elastic.driver.Ended(w.id, d)
}

func (w *workerProcess) Gone() {
	w.elastic.mu.Lock()
	delete(w.elastic.workers, w.id)
	w.elastic.mu.Unlock()
	w.elastic.driver.Gone(w.id)
}
