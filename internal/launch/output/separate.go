package output

import (
	"bytes"

	"github.com/gorovod/gorovod/internal/base/logging"
)

// separator makes each JSON line of a rank's log begin at the start of a line. The rank's program shares the stream and
// may have left an unfinished line there, for example "50% "; then the log's line follows on a line of its own.
type separator struct {
	held  []byte // may be the beginning of logging.JSONPrefix
	amid  bool   // the byte that was passed on last did not end a line
	ready []byte // what apart returns
}

// apart returns the stream up to p, with the newlines that were missing; an empty p is the end, which returns the rest.
// The result is valid until the next call.
func (s *separator) apart(p []byte) []byte {
	s.ready = s.ready[:0]
	end := len(p) == 0
	p = append(s.held, p...)
	for {
		i := bytes.Index(p, []byte(logging.JSONPrefix))
		if i < 0 {
			break
		}
		s.pass(p[:i])
		if s.amid {
			s.pass([]byte{'\n'})
		}
		s.pass(p[i : i+len(logging.JSONPrefix)])
		p = p[i+len(logging.JSONPrefix):]
	}
	n := 0
	if !end {
		n = begun(p)
	}
	s.pass(p[:len(p)-n])
	s.held = append(s.held[:0], p[len(p)-n:]...)
	return s.ready
}

func (s *separator) pass(p []byte) {
	if len(p) > 0 {
		s.ready = append(s.ready, p...)
		s.amid = p[len(p)-1] != '\n'
	}
}

// begun is how many bytes at the end of p may begin a line of the log.
func begun(p []byte) int {
	for n := min(len(p), len(logging.JSONPrefix)-1); n > 0; n-- {
		if bytes.HasPrefix([]byte(logging.JSONPrefix), p[len(p)-n:]) {
			return n
		}
	}
	return 0
}
