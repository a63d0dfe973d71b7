package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// workerProcess is a worker of an elastic job while its command runs. It watches the command, and passes its output
// on. Output prefixes and files have its number instead of a rank, because ranks change.
type workerProcess struct {
	id      int
	host    string
	job     *elasticJob
	streams [2]*stream
	opened  atomic.Bool // streams are set
	files   [2]*os.File // nil without --output-filename
	results *os.File    // nil without a directory for results

	mu      sync.Mutex
	crew    crew           // nil until the command is started
	pending syscall.Signal // a signal that came before the crew
}

// open makes the streams of its output.
func (w *workerProcess) open() (err error) {
	if w.results, err = createResults(w.job.ResultDir, workerResults(w.id)); err != nil {
		return err
	}
	for i, to := range [2]*printer{w.job.out, w.job.err} {
		var file io.Writer
		if w.job.OutputDir != "" {
			f, err := createOutput(w.directory(), streamNames[i])
			if err != nil {
				return err
			}
			w.files[i] = f
			file = &output{w: f, lost: func(err error) { w.job.lose(err, w.job.err) }}
		}
		w.streams[i] = newStream(to, file, w.id, streamNames[i], w.job.Timestamps)
	}
	w.opened.Store(true)
	return nil
}

// directory is the folder of its output with --output-filename.
func (w *workerProcess) directory() string {
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
func (w *workerProcess) run(c crew, cmd command) {
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
	w.job.driver.Started(w.id, pid)
	w.job.tell("worker %d runs on %s with pid %d", w.id, w.host, pid)
}

func (w *workerProcess) Output(stream int, p []byte) {
	switch {
	case stream < len(w.streams):
		w.streams[stream].write(p)
	case w.results != nil && len(p) > 0:
		if _, err := w.results.Write(p); err != nil {
			w.job.lose(err, w.job.err)
		}
	}
}

func (w *workerProcess) Ended(e outcome) {
	d := rendezvous.Death{Host: w.host, PID: e.PID, Signal: e.Signal, ExitCode: e.Code, At: e.At}
	switch {
	case e.Err != nil:
		d.ExitCode = max(1, e.Code)
		w.job.sayError("cannot start worker %d on host %s: %v", w.id, w.host, e.Err)
	case e.Lost != nil:
		d.Lost = e.Lost.Error()
		if h := (*hostError)(nil); errors.As(e.Lost, &h) {
			d.Lost = h.What
		}
		w.job.driver.HostLost(w.host)
	}
	if d.Failed() && w.streams[stderrStream] != nil {
		d.Stderr = w.streams[stderrStream].last()
		w.job.mu.Lock()
		w.job.shown[w.id] = w.streams[stderrStream].shown.Load()
		w.job.mu.Unlock()
	}
	w.job.driver.Ended(w.id, d)
}

func (w *workerProcess) Gone() {
	w.job.mu.Lock()
	delete(w.job.workers, w.id)
	w.job.mu.Unlock()
	w.job.driver.Gone(w.id)
}

func (w *workerProcess) Over() {
	defer w.job.taking.Done()
	for _, f := range append(w.files[:], w.results) {
		if f != nil {
			f.Close()
		}
	}
}
