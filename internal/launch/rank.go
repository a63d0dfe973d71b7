package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// rank is one slot of a job while its command runs. It watches the command, and passes its output on.
type rank struct {
	Slot
	job     *Job
	crew    crew
	pid     atomic.Int64 // of the command; 0 until it is known
	streams [2]*stream
	files   [2]*os.File // nil without --output-filename
	results *os.File    // nil without a directory for results
	news    chan<- news
}

// openFiles makes dir/rank.<n>/stdout and stderr, the rank padded with zeros to
// the width of the largest.
func (r *rank) openFiles(dir string) error {
	width := len(fmt.Sprint(r.Size - 1))
	dir = filepath.Join(dir, fmt.Sprintf("rank.%0*d", width, r.Rank))
	for i := range r.files {
		f, err := createOutput(dir, streamNames[i])
		if err != nil {
			return err
		}
		r.files[i] = f
	}
	return nil
}

// createResults makes the file for a command's third stream; nil if dir is empty.
func createResults(dir, name string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// openStreams makes the streams of the rank's output.
func (r *rank) openStreams() {
	for i, to := range [2]*printer{r.job.out, r.job.err} {
		var file io.Writer
		if r.files[i] != nil {
			file = &output{w: r.files[i], lost: func(err error) { r.job.lose(err, r.job.err) }}
		}
		r.streams[i] = newStream(to, file, r.Rank, streamNames[i], r.job.Timestamps)
	}
}

func (r *rank) closeFiles() {
	for _, f := range append(r.files[:], r.results) {
		if f != nil {
			f.Close()
		}
	}
}

func (r *rank) signal(sig syscall.Signal) { r.crew.Signal(r.Rank, sig) }

func (r *rank) Started(pid int) {
	r.pid.Store(int64(pid))
	r.job.server.Started(r.Rank, r.Host, pid)
	r.job.tell("rank %d runs on %s with pid %d", r.Rank, r.Host, pid)
}

func (r *rank) Output(stream int, p []byte) {
	switch {
	case stream < len(r.streams):
		r.streams[stream].write(p)
	case r.results != nil && len(p) > 0:
		if _, err := r.results.Write(p); err != nil {
			r.job.lose(err, r.job.err)
		}
	}
}

func (r *rank) Ended(e outcome) {
	d := rendezvous.Death{Rank: r.Rank, Host: r.Host, PID: e.PID, Signal: e.Signal, ExitCode: e.Code, At: e.At}
	if e.Err != nil {
		r.news <- news{rank: r, kind: cannotStart, err: &startError{r.Rank, e.Code, e.Err}}
		return
	}
	if e.Lost != nil {
		d.Lost = e.Lost.Error()
		if h := (*hostError)(nil); errors.As(e.Lost, &h) {
			d.Lost = h.What // without the host's name, which the message has elsewhere
		}
	}
	if d.Failed() {
		d.Stderr = r.streams[stderrStream].last()
	}
	r.news <- news{rank: r, kind: ended, death: r.job.server.Died(d)}
}

func (r *rank) Gone() { r.news <- news{rank: r, kind: gone} }

func (r *rank) Over() {
	r.closeFiles()
	r.job.taking.Done()
}
