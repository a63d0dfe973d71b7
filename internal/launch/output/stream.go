// Package output prints what ranks write: each line with its rank before it, on the launcher's stdout and stderr, and
// the bytes as they are in files.
//
//	a rank's stdout ─▶ Stream ─┬─ lines ─▶ Printer ─▶ the launcher's stdout
//	                           └─ bytes ─▶ Writer ─▶ a file
//
// The job makes a Stream for each stdout and stderr of a rank, and one Printer for its own stdout and stderr each. A
// Stream also keeps the last lines, for the message about a failure. A reader that does not read blocks only the ranks
// that print, and output that cannot be written is reported, never waited for. A Report tells horovod.run why the job
// has failed. This package must not know how ranks are started, or how the job ends.
package output

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/logging"
)

const (
	// maxLine is the longest line that stays whole; longer ones are cut into
	// pieces, each a line.
	maxLine = 64 << 10
	// The last lines of stderr are kept for the message about a failure.
	tailLines     = 10
	tailLineBytes = 400
)

// Stream passes one rank's stdout or stderr to the launcher's own, line by line, each with its prefix. Its methods,
// except Last, belong to one goroutine.
type Stream struct {
	to     io.Writer
	file   io.Writer // the bytes as they are; nil for none
	Prefix string    // like [3]<stdout>:
	stamp  bool      // put the time before the prefix
	// json: ranks log in JSON. These lines get no prefix, because they name the rank themselves. All lines then end at
	// \n alone, because log collectors know no other end.
	json bool
	now  func() time.Time

	apart   separator // for json
	partial []byte    // a line that has begun, at most maxLine bytes
	out     []byte    // whole lines, with their prefixes, for the next Write
	afterCR bool      // the last byte was \r, so a \n that follows belongs to it

	Shown atomic.Int64 // the number, in the launcher's output, of this rank's last line

	mu      sync.Mutex
	tail    [][]byte // the last lines, or the first ones of a crash. mu
	crashed bool     // tail begins with that of a crash. mu
	suspect bool     // the last line of tail may begin a crash. mu
}

// NewStream makes the stream of a rank with that name, such as stdout. Lines go to to, and the bytes to file, which may
// be nil; stamp puts the time before each line.
func NewStream(to, file io.Writer, rank int, name string, stamp bool) *Stream {
	return &Stream{to: to, file: file, Prefix: LinePrefix(rank, name), stamp: stamp,
		json: logging.InUse() == logging.JSON, now: time.Now}
}

// LinePrefix begins each line of a rank's stream.
func LinePrefix(rank int, name string) string { return "[" + strconv.Itoa(rank) + "]<" + name + ">:" }

// Pass takes the next bytes; an empty p is the end. It drops what cannot be written, so that a rank never blocks; the
// outputs report the loss.
func (s *Stream) Pass(p []byte) {
	end := len(p) == 0
	if s.json {
		p = s.apart.apart(p)
	}
	if s.file != nil && len(p) > 0 {
		s.file.Write(p)
	}
	s.take(p)
	if end && len(s.partial) > 0 {
		s.line(nil, "\n")
		s.flush()
	}
}

// take cuts p into lines, which end at \n, \r or both, and writes the complete ones.
func (s *Stream) take(p []byte) {
	if s.afterCR && len(p) > 0 {
		s.afterCR = false
		if p[0] == '\n' {
			if !s.json { // with json, the \r did not end the line
				s.out = append(s.out, '\n')
			}
			p = p[1:]
		}
	}
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\n\r")
		room := maxLine - len(s.partial)
		switch {
		case (i < 0 && len(p) > room) || i > room:
			s.line(p[:room], "\n")
			p = p[room:]
		case i < 0:
			s.partial = append(s.partial, p...)
			p = nil
		case p[i] == '\n':
			s.line(p[:i], "\n")
			p = p[i+1:]
		case i+1 < len(p) && p[i+1] == '\n':
			s.line(p[:i], "\r\n")
			p = p[i+2:]
		default:
			s.line(p[:i], "\r")
			s.afterCR = i+1 == len(p)
			p = p[i+1:]
		}
	}
	s.flush()
}

// line adds the line that begins with partial and ends with rest.
func (s *Stream) line(rest []byte, end string) {
	bare := s.json && logging.IsJSON(slices.Concat(s.partial, rest[:min(len(rest), 64)]))
	if s.stamp && !bare {
		s.out = s.now().AppendFormat(s.out, time.ANSIC)
	}
	if !bare {
		s.out = append(s.out, s.Prefix...)
	}
	begin := len(s.out)
	s.out = append(s.out, s.partial...)
	s.out = append(s.out, rest...)
	s.remember(s.out[begin:])
	if s.json {
		end = "\n"
	}
	s.out = append(s.out, end...)
	s.partial = s.partial[:0]
}

func (s *Stream) flush() {
	if len(s.out) > 0 {
		s.to.Write(s.out)
		s.out = s.out[:0]
		if p, ok := s.to.(*Printer); ok {
			s.Shown.Store(p.count())
		}
	}
}

// beginsCrash reports whether line begins what Go's runtime writes when a process crashes, such as "SIGSEGV:
// segmentation violation". All threads and registers follow, of which the first lines tell most.
func beginsCrash(line []byte) bool {
	name, _, found := bytes.Cut(line[:min(len(line), 16)], []byte(": "))
	return found && slices.Contains(crashes, string(name))
}

var crashes = []string{"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS", "fatal error"}

// goesOnWithCrash reports whether line is the one after that.
func goesOnWithCrash(line []byte) bool {
	return slices.ContainsFunc([]string{"PC=", "[signal ", "runtime", "goroutine "}, func(begin string) bool {
		return bytes.HasPrefix(line, []byte(begin))
	})
}

// traceback begins the stack of a Python exception: the process was alive then.
var traceback = []byte("Traceback (most recent call last):")

func (s *Stream) remember(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.crashed && s.suspect && goesOnWithCrash(line):
		s.tail, s.crashed = append(s.tail[:0], s.tail[len(s.tail)-1]), true
	case s.crashed && bytes.HasPrefix(line, traceback):
		s.crashed = false
	case s.crashed && len(s.tail) == tailLines:
		return
	}
	s.suspect = beginsCrash(line)
	var reuse []byte
	if len(s.tail) == tailLines {
		reuse = s.tail[0][:0]
		copy(s.tail, s.tail[1:])
		s.tail = s.tail[:tailLines-1]
	}
	if len(line) > tailLineBytes {
		line = line[:tailLineBytes]
	}
	s.tail = append(s.tail, append(reuse, line...))
}

// Last returns the last lines so far, or the first ones of a crash. Safe on any goroutine.
func (s *Stream) Last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.ToValidUTF8(bytes.Join(s.tail, []byte("\n")), []byte("?")))
}
