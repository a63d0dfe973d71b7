package job

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// supervised is one command of a job while it runs, and where its output goes: to the launcher's own, and to files.
type supervised struct {
	job     *Job
	id      int // the rank; in an elastic job, where ranks change, the worker
	host    string
	streams [2]*output.Stream // nil before open
	files   [2]*os.File       // nil without --output-filename
	results *os.File          // nil without a directory for results
}

// open makes the command's streams, and its files: those of stdout and stderr in dir, and that of its third stream,
// which is called results, in the job's folder. An empty dir, or no such folder, is none.
func (w *supervised) open(dir, results string) (err error) {
	if w.job.ResultDir != "" {
		path := filepath.Join(w.job.ResultDir, results)
		if w.results, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return err
		}
	}
	for i, to := range [2]*output.Printer{w.job.out, w.job.err} {
		var file io.Writer
		if dir != "" {
			if w.files[i], err = output.CreateFile(dir, spawn.StreamNames[i]); err != nil {
				return err
			}
			file = output.NewWriter(w.files[i], func(err error) { w.job.lose(err, w.job.err) })
		}
		w.streams[i] = output.NewStream(to, file, w.id, spawn.StreamNames[i], w.job.Timestamps)
	}
	return nil
}

// Output passes a piece of the command's output on.
func (w *supervised) Output(stream int, p []byte) {
	switch {
	case stream < len(w.streams):
		w.streams[stream].Pass(p)
	case w.results != nil && len(p) > 0:
		if _, err := w.results.Write(p); err != nil {
			w.job.lose(err, w.job.err)
		}
	}
}

// Over: all its output has come.
func (w *supervised) Over() {
	w.closeFiles()
	w.job.taking.Done()
}

func (w *supervised) closeFiles() {
	for _, f := range append(w.files[:], w.results) {
		if f != nil {
			f.Close()
		}
	}
}

// death is the command's end, with the last lines of its stderr if it has failed. Its rank is left at 0.
func (w *supervised) death(e spawn.Outcome) rendezvous.Death {
	d := rendezvous.Death{Host: w.host, PID: e.PID, Signal: e.Signal, ExitCode: e.Code, At: e.At}
	if e.Lost != nil {
		d.Lost = e.Lost.Error()
		if h := (*remote.HostError)(nil); errors.As(e.Lost, &h) {
			d.Lost = h.What // without the host's name, which messages have elsewhere
		}
	}
	if stderr := w.streams[spawn.Stderr]; d.Failed() && stderr != nil {
		d.Stderr = stderr.Last()
	}
	return d
}
