package rendezvous

import (
	"errors"
	"io"
)

// ErrLost: the connection to the process that serves the rendezvous has ended by itself. An error that wraps it names
// that process.
var ErrLost = errors.New("the launcher is gone")

// lost is the end of a connection to a server.
type lost struct {
	server string // the process that serves; empty for the launcher
	cause  error  // may be nil
}

func (l *lost) Error() string {
	text := ErrLost.Error()
	if l.server != "" {
		text = l.server + ", which serves the rendezvous, is gone"
	}
	if l.cause != nil {
		text += ": " + l.cause.Error()
	}
	return text
}

// Unwrap returns ErrLost and the cause.
func (l *lost) Unwrap() []error {
	if l.cause == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, l.cause}
}

// lost is the error of a connection that err has ended.
func (s *Session) lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // which say no more than ErrLost
		err = nil
	}
	return &lost{s.ServedBy(), err}
}

// ServedBy names the process that serves, such as "rank 0"; empty for the launcher.
func (s *Session) ServedBy() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// NameServer gives the rank that serves, if a rank does, a name that says more, such as its host.
func (s *Session) NameServer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != "" {
		s.server = name
	}
}
