package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Writer writes lines: those of all ranks to the launcher's stdout or stderr, or those of one rank to a file. Each
// Write to a stdout or stderr has whole lines only. Write may be called on any goroutine.
type Writer struct {
	w io.Writer
	// lost is called on the first failed Write, by the writing goroutine. It may write to another Writer. It may be
	// nil.
	lost func(err error)

	mu  sync.Mutex
	err error // of the first Write that failed. mu
}

// NewWriter makes a writer. Its first failed Write calls lost, unless that is nil.
func NewWriter(w io.Writer, lost func(err error)) *Writer { return &Writer{w: w, lost: lost} }

func (o *Writer) Write(p []byte) (int, error) {
	n, err, first := o.write(p)
	if first && o.lost != nil {
		o.lost(err)
	}
	return n, err
}

// write tries again after an error, because a full disk may get room again. A pipe without a reader stays broken.
func (o *Writer) write(p []byte) (n int, err error, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if BrokenPipe(o.err) {
		return 0, o.err, false
	}
	n, err = o.w.Write(p)
	if first = err != nil && o.err == nil; first {
		o.err = err
	}
	return n, err, first
}

// BrokenPipe reports whether the reader is gone for good.
func BrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// CreateFile makes a directory, and in it the file for a stream of a process. It refuses a pipe of that name, which
// would block the process if nobody reads it.
func CreateFile(dir, stream string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("--output-filename: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, stream))
	if err != nil {
		return nil, fmt.Errorf("--output-filename: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		f.Close()
		return nil, fmt.Errorf("--output-filename: %s: it is a pipe, and a file is needed", f.Name())
	}
	return f, nil
}
