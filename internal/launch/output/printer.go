package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

const (
	// printerRoom is how many bytes a printer holds before a rank has to wait for the reader.
	printerRoom = 64 << 10
	// mostSaid is the most bytes of the launcher's own messages beyond that, so that the launcher does not grow while
	// nobody reads.
	mostSaid = 1 << 20
	// printerPiece is about how many bytes of whole lines one Write has. Small pieces show that a slow reader reads.
	printerPiece = 8 << 10
	// Screenful is how many further lines leave the last lines of a rank's stderr visible, so that the message about a
	// failure need not repeat them.
	Screenful = 100
)

// errUnread says that output is lost because its reader does not read.
var errUnread = errors.New("nobody reads it")

// Printer prints the lines of many goroutines on the launcher's stdout or stderr, from a goroutine of its own. So a
// reader that does not read blocks only the ranks that print, never the launcher.
type Printer struct {
	name  string
	to    *Writer
	moved chan<- struct{} // capacity 1: signalled after each piece that was written

	mu      sync.Mutex
	changed sync.Cond // of the fields below
	queue   []byte    // lines to be written. mu
	writing bool      // a piece is being written. mu
	lines   int64     // how many were queued so far. mu
	failed  bool      // some lines could not be written. mu
	dropped bool      // the reader was given up: all lines are dropped. mu
}

// NewPrinter makes a printer, which signals moved after each piece that it has written. lost is as in NewWriter.
func NewPrinter(name string, w io.Writer, moved chan<- struct{}, lost func(err error)) *Printer {
	p := &Printer{name: name, to: NewWriter(w, lost), moved: moved}
	p.changed.L = &p.mu
	go p.run()
	return p
}

// Write takes whole lines. It blocks while printerRoom bytes or more wait for the reader.
func (p *Printer) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) >= printerRoom && !p.dropped {
		p.changed.Wait()
	}
	p.add(lines)
	return len(lines), nil
}

// Say prints a message of the launcher's own. It never blocks: beyond mostSaid it drops the message.
func (p *Printer) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) < mostSaid {
		p.add(fmt.Appendf(nil, format, args...))
	}
}

// add queues lines. The caller holds mu.
func (p *Printer) add(lines []byte) {
	if !p.dropped {
		p.queue = append(p.queue, lines...)
		p.lines += int64(bytes.Count(lines, newline))
		p.changed.Broadcast()
	}
}

// run is the goroutine that writes. It ends with the process.
func (p *Printer) run() {
	var lines []byte
	for {
		p.mu.Lock()
		p.writing = false
		p.changed.Broadcast()
		for len(p.queue) == 0 {
			p.changed.Wait()
		}
		lines, p.queue = p.queue, lines[:0]
		p.writing = true
		p.changed.Broadcast()
		p.mu.Unlock()
		for rest := lines; len(rest) > 0 && !p.isDropped(); {
			n := pieceOf(rest)
			if _, err := p.to.Write(rest[:n]); err != nil {
				p.mu.Lock()
				p.failed = true
				p.mu.Unlock()
			}
			rest = rest[n:]
			select {
			case p.moved <- struct{}{}:
			default:
			}
		}
	}
}

var newline = []byte{'\n'}

// count is the number of lines that are printed or waiting.
func (p *Printer) count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// Sees reports whether the reader can still see the line with that number.
func (p *Printer) Sees(line int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failed && !p.dropped && p.lines-line <= Screenful
}

// pieceOf is the length of the first piece of lines: as many lines as fit into printerPiece, or one.
func pieceOf(lines []byte) int {
	if len(lines) <= printerPiece {
		return len(lines)
	}
	if i := bytes.LastIndexByte(lines[:printerPiece], '\n'); i >= 0 {
		return i + 1
	}
	if i := bytes.IndexByte(lines, '\n'); i >= 0 {
		return i + 1
	}
	return len(lines)
}

func (p *Printer) isDropped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// Flush blocks until all lines are written, or dropped.
func (p *Printer) Flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.dropped && (p.writing || len(p.queue) > 0) {
		p.changed.Wait()
	}
}

// IsBusy reports whether lines wait for the reader.
func (p *Printer) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dropped && (p.writing || len(p.queue) > 0)
}

// Drop gives the reader up: it discards all lines, now and later.
func (p *Printer) Drop() {
	p.mu.Lock()
	p.dropped, p.queue = true, nil
	p.changed.Broadcast()
	p.mu.Unlock()
	if p.to.lost != nil {
		p.to.lost(fmt.Errorf("%s: %w", p.name, errUnread))
	}
}

// Enlarge makes room in a pipe for the output at the end of a job, so that the user of a pager can read it later.
func (p *Printer) Enlarge() {
	if f, ok := p.to.w.(*os.File); ok {
		enlarge(f)
	}
}
