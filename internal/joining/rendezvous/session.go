package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
)

var errClosed = errors.New("the session has been closed")

const (
	// joinTimeout limits Join if its context does not.
	joinTimeout = 30 * time.Second
	// askTimeout is how long the server may take to say who is missing.
	askTimeout = time.Second
)

// Options is the input of Join.
type Options struct {
	Rank, Size int
	Host       string
	PID        int
	// Generation counts this process's Inits, from 1. Ranks with equal numbers meet.
	Generation uint64
	// TLS, if not nil, encrypts everything after the proof, with these certificates.
	TLS *auth.Certificates
	// Arch is the architecture that all ranks must share; runtime.GOARCH if empty.
	Arch string
	// TrackFD, if set, is called with the connection's descriptor when it is opened and before it is closed, so that a
	// forked child can close its copy.
	TrackFD func(fd int, open bool)

	// protocol and shape replace Protocol (if not 0) and Shape() (if not empty). Tests use them to pretend to be
	// another version.
	protocol int
	shape    string
}

// Session is one rank's connection to one generation. Its methods are safe on any goroutine.
type Session struct {
	o      Options
	conn   net.Conn
	addr   string // the address that conn connects to
	fd     int
	agreed uint64
	ended  chan struct{} // closed when the connection has ended; err says why
	judged chan struct{} // closed when there is a verdict
	failed chan struct{} // closed when there is a verdict that says more than that a rank has left

	writing sync.Mutex

	mu      sync.Mutex
	server  string    // the process that serves; empty for the launcher
	changed sync.Cond // signalled when a death arrives, or the session ends
	closing bool      // Close was called: it is the cause of whatever ends the session now
	err     error     // set once, before ended is closed
	deaths  []Death
	verdict *Verdict // Cause and View are set once
	uses    map[string]uint64
	waits   map[exchangeKey]*wait
	inquiries
	beats  chan []Silence // capacity 1: the last answer to a Beat
	onTell atomic.Pointer[func(stack bool) []byte]
}

// wait is an Exchange that has not returned.
type wait struct {
	values  [][]byte
	have    int
	done    chan struct{} // closed when values are complete or err is set
	err     error
	missing chan string // capacity 1
}

// Join connects to the server, proves the secret both ways and enters the generation. addrs are the addresses where the
// server may be, the likeliest first. Join tries them in parallel, each a little later than the one before, and keeps
// the first one that proves that it knows the secret. It fails at once if nobody listens at any address; otherwise it
// fails after 30 s or when ctx ends.
func Join(ctx context.Context, addrs []string, key []byte, o Options) (*Session, error) {
	if o.Rank < 0 || o.Rank >= o.Size {
		return nil, fmt.Errorf("rendezvous: rank %d of %d", o.Rank, o.Size)
	}
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	if o.protocol == 0 {
		o.protocol = Protocol
	}
	if o.shape == "" {
		o.shape = Shape()
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	a, err := find(ctx, addrs, key, o)
	if err != nil {
		return nil, fmt.Errorf("rendezvous: %w", err)
	}
	s := &Session{
		o: o, conn: a.conn, addr: a.addr, fd: -1,
		ended:  make(chan struct{}),
		judged: make(chan struct{}),
		failed: make(chan struct{}),
		uses:   map[string]uint64{},
		waits:  map[exchangeKey]*wait{},
	}
	s.questions = make(chan struct{}, 1)
	s.beats = make(chan []Silence, 1)
	s.changed.L = &s.mu
	s.track()
	// When ctx ends, the deadline interrupts blocked calls.
	stop := context.AfterFunc(ctx, func() { a.conn.SetDeadline(time.Unix(1, 0)) })
	err = s.enter(a.finish, key)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		s.end(err)
		return nil, fmt.Errorf("rendezvous: join the launcher at %s: %w", a.addr, err)
	}
	guard.Go("the connection to the launcher", s.end, s.read)
	guard.Go("the answers to other ranks", s.end, s.reply)
	return s, nil
}

// enter proves this end and reads the welcome.
func (s *Session) enter(finish func() error, key []byte) error {
	if err := finish(); err != nil {
		return err
	}
	if s.o.TLS != nil {
		sealed, err := s.o.TLS.Seal(s.conn, key, true)
		if err != nil {
			return err
		}
		s.conn = sealed
	}
	m, err := decode(s.conn)
	if err != nil {
		return fmt.Errorf("read the welcome: %w", err)
	}
	if m.Type != typeWelcome {
		return errors.New(m.Text)
	}
	s.agreed, s.server = m.Generation, m.Text
	return nil
}

// Addr returns the server's address.
func (s *Session) Addr() string { return s.addr }

// Generation returns the agreed number of this generation. It is the same on all its ranks, and no other generation of
// the job has it.
func (s *Session) Generation() uint64 { return s.agreed }

// read is the goroutine that reads frames until the connection ends.
func (s *Session) read() {
	for {
		m, err := decode(s.conn)
		if err != nil {
			s.end(s.lost(err))
			return
		}
		if m.Type == typePing {
			s.write(message{Type: typePong}) // answered here, so that a rank lives as long as this goroutine runs
			continue
		}
		if m.Type == typeTell {
			s.tell(m.Stack)
			continue
		}
		s.take(m)
	}
}

func (s *Session) take(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Type == typeDeath && m.Death != nil {
		s.deaths = append(s.deaths, *m.Death)
		s.changed.Broadcast()
		return
	}
	if s.hear(m) || s.hearBeats(m) || s.hearVerdict(m) {
		return
	}
	key := exchangeKey{m.Name, m.Use}
	w := s.waits[key]
	if w == nil {
		return // Exchange has given up
	}
	switch m.Type {
	case typeValues:
		if m.Alike && m.First == 0 && len(m.Values) == 1 {
			m.Values = slices.Repeat(m.Values, s.o.Size)
		}
		if m.First != w.have || w.have+len(m.Values) > s.o.Size {
			w.err = fmt.Errorf("rendezvous %q: the launcher sent values out of order", m.Name)
			break
		}
		copy(w.values[m.First:], m.Values)
		if w.have += len(m.Values); w.have < s.o.Size {
			return
		}
	case typeFailed:
		if m.Death != nil {
			w.err = fmt.Errorf("rendezvous %q: %w", m.Name, *m.Death)
		} else {
			w.err = fmt.Errorf("rendezvous %q: %s", m.Name, m.Text)
		}
	case typeMissing:
		select {
		case w.missing <- m.Text:
		default:
		}
		return
	default:
		return
	}
	delete(s.waits, key)
	close(w.done)
}

// Exchange sends value (at most MaxValue bytes) to all ranks of this generation, and returns the values of all ranks,
// by rank. An empty value stays empty, not nil. Equal values may share memory. All ranks call Exchange with the same
// name. A name may be used again, and several names may be under way at a time.
//
// Exchange blocks until the last rank has called it, or ctx ends here or on another rank: then the error says who is
// missing. It fails at once if a rank can never come: the error wraps the Death of a rank that died, or ErrLost if the
// launcher is gone.
func (s *Session) Exchange(ctx context.Context, name string, value []byte) ([][]byte, error) {
	if len(name) > maxName || len(value) > MaxValue {
		return nil, fmt.Errorf("rendezvous %q: a name of %d and a value of %d bytes, at most %d and %d are allowed",
			clip(name, maxName), len(name), len(value), maxName, MaxValue)
	}
	began := time.Now()
	w := &wait{values: make([][]byte, s.o.Size), done: make(chan struct{}), missing: make(chan string, 1)}
	s.mu.Lock()
	if len(s.waits) >= maxPending-1 {
		s.mu.Unlock()
		return nil, fmt.Errorf("rendezvous %q: %d other exchanges are under way", name, maxPending-1)
	}
	key := exchangeKey{name, s.uses[name]}
	s.uses[name]++
	s.waits[key] = w
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waits, key)
		s.mu.Unlock()
	}()

	if err := s.write(message{Type: typeExchange, Name: key.name, Use: key.use, Value: value}); err != nil {
		return nil, fmt.Errorf("rendezvous %q: %w", name, err)
	}
	select {
	case <-w.done:
		return w.result()
	case <-s.ended:
		return w.orEnded(s, name)
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("rendezvous %q: %w", name, ctx.Err())
	}
	waited := time.Since(began)
	if waited > time.Second/2 {
		waited = waited.Round(time.Second / 10)
	} else {
		waited = waited.Round(time.Millisecond)
	}
	text := "a launcher that does not answer"
	if err := s.write(message{Type: typeGiveUp, Name: key.name, Use: key.use, Text: waited.String()}); err == nil {
		select {
		case <-w.done:
			return w.result()
		case <-s.ended:
			return w.orEnded(s, name)
		case text = <-w.missing:
		case <-time.After(askTimeout):
		}
	}
	return nil, &timeoutError{fmt.Sprintf("rendezvous %q: waited %v for %s", name, waited, text)}
}

// result returns the values or the error. Call it once done is closed.
func (w *wait) result() ([][]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w.values, nil
}

// orEnded returns the result after the connection has ended: an answer that arrived before the end counts.
func (w *wait) orEnded(s *Session, name string) ([][]byte, error) {
	select {
	case <-w.done:
		return w.result()
	default:
		return nil, fmt.Errorf("rendezvous %q: %w", name, s.cause())
	}
}

// timeoutError is the end of a context's time, with its own text.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// OnDeath calls f for each rank that has died, also for earlier deaths, one after the other on a goroutine of its own,
// until the session ends. Of ranks that left properly (Close) and exited with code 0 it hears only while it lives
// itself.
func (s *Session) OnDeath(f func(Death)) {
	guard.Go("the news of deaths", s.end, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := 0; ; i++ {
			for i == len(s.deaths) && s.err == nil {
				s.changed.Wait()
			}
			if i == len(s.deaths) || errors.Is(s.err, errClosed) {
				return
			}
			s.unlocked(f, s.deaths[i])
		}
	})
}

// unlocked calls f without mu, which the caller holds.
func (s *Session) unlocked(f func(Death), d Death) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f(d)
}

// OnLost calls f once, on a goroutine of its own, when the connection to the launcher ends other than by Close, or has
// ended so before. The error wraps ErrLost.
func (s *Session) OnLost(f func(error)) {
	guard.Go("the news of the launcher's end", s.end, func() {
		<-s.ended
		if err := s.cause(); !errors.Is(err, errClosed) {
			f(err)
		}
	})
}

// Report tells the launcher why this rank failed. The first report counts. It is best effort: it returns nothing, and
// blocks at most 10 s.
func (s *Session) Report(text string) { s.ReportOn(s.o.Rank, text) }

// ReportOn tells the launcher of a failure of another rank that this rank has noticed.
func (s *Session) ReportOn(rank int, text string) {
	s.write(message{Type: typeReport, About: 1 + rank, Text: clip(text, maxText), At: time.Now().UnixNano()})
}

// ReportVictim tells the launcher that operations of this rank have failed because of the verdict. It blocks at most
// limit.
func (s *Session) ReportVictim(limit time.Duration) {
	written := make(chan struct{})
	guard.Go("the report of a victim", s.end, func() {
		s.write(message{Type: typeVictim, At: time.Now().UnixNano()})
		close(written)
	})
	select {
	case <-written:
	case <-time.After(limit):
	}
}

// Close leaves the generation. Every Exchange under way fails here; on other ranks it fails if this rank has not
// contributed. Closing twice is allowed.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.write(message{Type: typeLeave})
	s.end(errClosed)
	return nil
}

func (s *Session) write(m message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	select {
	case <-s.ended:
		return s.cause()
	default:
	}
	s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.conn.Write(frame); err != nil {
		s.end(s.lost(err))
		return s.cause()
	}
	return nil
}

// end closes the connection and wakes all waiters. Only the first cause counts.
func (s *Session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if s.closing {
		cause = errClosed // the server may have closed the connection already, after the farewell
	}
	s.err = cause
	if s.fd >= 0 && s.o.TrackFD != nil {
		s.o.TrackFD(s.fd, false)
	}
	s.conn.Close()
	close(s.ended)
	s.changed.Broadcast()
}

// cause returns why the session ended.
func (s *Session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Session) track() {
	if s.o.TrackFD == nil {
		return
	}
	if c, ok := s.conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { s.fd = int(fd) })
		}
	}
	if s.fd >= 0 {
		s.o.TrackFD(s.fd, true)
	}
}
