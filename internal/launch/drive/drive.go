// Package drive is the driver of an elastic job whose processes another program starts: Ray's actors, Spark's tasks,
// pods. That program, the starter, runs `gorovod drive` and exchanges lines of JSON with it. The driver decides; the
// starter starts and ends processes, and reports what happens to them:
//
//	starter ──Request──▶ stdin ── drive ── driver.Driver ◀──TCP──▶ workers, in hvd.init()
//	        ◀──Event──── stdout ─┘
//
// This package does not know the starter's platform. When stdin ends the starter is dead: the driver ends at once, and
// the workers, which lose it, end by themselves.
package drive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/driver"
)

// ErrStarterGone says that the input ended before the job.
var ErrStarterGone = errors.New("the program that started this one is gone; the workers end by themselves")

// Network says where workers find the driver and one another.
type Network struct {
	// Listeners are where the driver serves workers. Run's caller closes them.
	Listeners []net.Listener
	// Meet opens an epoch's rendezvous.
	Meet func() ([]net.Listener, func(host string) []string, error)
	// Environment are the variables that a worker's process needs, without the job's key.
	Environment func(membership.Start) map[string]string
}

// Watch is who follows a job besides the starter. A function may be nil. None blocks, except Over.
type Watch struct {
	// Greeting is what the user is told first.
	Greeting []string
	// Certificates are those of driver.Options.
	Certificates auth.Certificates
	// Serves is that of driver.Options.
	Serves func(s *rendezvous.Server, size int, cause membership.Cause, words string)
	// Said gets what the user is told afterwards.
	Said func(text string)
	// Failed is that of driver.Options.
	Failed func(message string)
	// Over gets the outcome, if the job has one, and returns what the user is told last. It may take two seconds.
	Over func(driver.Outcome) (farewell []string)
}

// Run drives one job. It reads requests and writes events until the job is over, and returns once the outcome is
// written. It calls listen once, to make the job's network. The error is ErrStarterGone, a *RequestError, or an error
// of writing or listening.
func Run(in io.Reader, out io.Writer, listen func(Config) (Network, error), watch Watch) error {
	lines := newLines(in)
	config, hosts, err := begin(lines)
	if err != nil {
		return err
	}
	network, err := listen(config)
	if err != nil {
		return err
	}
	s := &session{events: newEvents(out), environment: network.Environment, watch: watch}
	defer s.events.close()
	for _, text := range watch.Greeting {
		s.events.send(Event{Type: Say, Text: text})
	}
	o := config.options()
	o.Hosts, o.Meet, o.Start, o.Signal = hosts, network.Meet, s.start, s.signal
	o.Serves, o.Failed, o.Certificates = watch.Serves, watch.Failed, watch.Certificates
	o.Say = func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		s.events.send(Event{Type: Say, Text: text})
		if watch.Said != nil {
			watch.Said(text)
		}
	}
	o.Debug = func(string, ...any) {}
	if config.Verbose {
		o.Debug = func(format string, args ...any) {
			s.events.send(Event{Type: Debug, Text: fmt.Sprintf(format, args...)})
		}
	}
	s.driver = driver.New(o)
	for _, l := range network.Listeners {
		go s.driver.Serve(l)
	}
	return s.run(lines)
}

// begin reads the configuration and the first hosts.
func begin(lines *lines) (c Config, hosts []membership.Host, err error) {
	for _, expected := range []string{TypeConfig, TypeHosts} {
		r, err := lines.next()
		if err != nil {
			return c, nil, err
		}
		if r.Type != expected {
			return c, nil, lines.fault(fmt.Errorf("%q has come, where %q is needed", r.Type, expected))
		}
		if r.Config != nil {
			c = *r.Config
		}
		hosts = r.Hosts
	}
	return c, hosts, nil
}

// session is a running job.
type session struct {
	driver      *driver.Driver
	events      *events
	environment func(membership.Start) map[string]string
	watch       Watch
	workers     atomic.Int64 // as many have been asked for: they are numbered from 0 on
}

// run runs the job until it ends, or the input ends.
func (s *session) run(lines *lines) error {
	type end struct {
		outcome driver.Outcome
		err     error
	}
	over := make(chan end, 1)
	go func() {
		o, err := s.driver.Run(context.Background())
		over <- end{o, err}
	}()
	faults := make(chan error, 1)
	go func() { faults <- s.obey(lines) }()
	select {
	case e := <-over:
		if e.err != nil {
			return e.err
		}
		if s.watch.Over != nil {
			for _, text := range s.watch.Over(e.outcome) {
				s.events.send(Event{Type: Say, Text: text})
			}
		}
		s.events.send(outcome(e.outcome))
		return s.events.flush()
	case err := <-faults:
		s.driver.Abandon()
		<-over
		return err
	case <-s.events.failed:
		s.driver.Abandon()
		<-over
		return s.events.flush()
	}
}

// obey takes requests until there are no more.
func (s *session) obey(lines *lines) error {
	for {
		r, err := lines.next()
		if err != nil {
			return err
		}
		if err := s.take(r); err != nil {
			return lines.fault(err)
		}
	}
}

func (s *session) take(r Request) error {
	ofWorker := r.Type == TypeStarted || r.Type == TypeEnded || r.Type == TypeGone
	if ofWorker && int64(r.Worker) >= s.workers.Load() {
		return fmt.Errorf("%s: worker %d has not been asked for", r.Type, r.Worker)
	}
	switch r.Type {
	case TypeHosts:
		s.driver.Offer(r.Hosts)
	case TypeStarted:
		s.driver.Started(r.Worker, r.PID)
	case TypeEnded:
		s.driver.Ended(r.Worker, rendezvous.Death{Host: r.Host, PID: r.PID, ExitCode: r.Code, Signal: r.Signal,
			Told: r.Reason, Stderr: r.Stderr, At: time.Now()})
	case TypeGone:
		s.driver.Gone(r.Worker)
	case TypeHostLost:
		s.driver.HostLost(r.Host)
	case TypeInterrupt:
		s.driver.Interrupt(syscall.SIGTERM, r.Reason)
	default:
		return fmt.Errorf("%q may come only at the beginning", r.Type)
	}
	return nil
}

func (s *session) start(a membership.Start) {
	s.workers.Store(max(s.workers.Load(), int64(a.Worker)+1)) // only the driver's goroutine calls this
	s.events.send(Event{Type: Start, Worker: &a.Worker, Host: a.Host, Slot: &a.Slot, Environment: s.environment(a)})
}

func (s *session) signal(worker int, sig syscall.Signal) {
	s.events.send(Event{Type: Signal, Worker: &worker, Signal: int(sig)})
}

// outcome is the last event.
func outcome(o driver.Outcome) Event {
	e := Event{Type: Outcome, Text: o.Reason, Earlier: o.Earlier, Ranks: o.Ranks}
	if f := o.Failure; f != nil {
		e.Failure = &Failure{Worker: f.Worker, Rank: f.Death.Rank, Host: f.Death.Host, PID: f.Death.PID,
			Text:     f.String(),
			Reported: f.Death.Reason, Stderr: f.Death.Stderr}
	}
	return e
}

// maxLine bounds a request: a list of 100,000 hosts fits.
const maxLine = 16 << 20

// lines reads requests, and counts them.
type lines struct {
	scanner *bufio.Scanner
	number  int
}

func newLines(in io.Reader) *lines {
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxLine)
	return &lines{scanner: s}
}

// next blocks until a request has come.
func (l *lines) next() (Request, error) {
	if !l.scanner.Scan() {
		if err := l.scanner.Err(); err != nil {
			l.number++
			return Request{}, l.fault(err)
		}
		return Request{}, ErrStarterGone
	}
	l.number++
	r, err := Parse(l.scanner.Bytes())
	if err != nil {
		return Request{}, l.fault(err)
	}
	return r, nil
}

// RequestError is a line of input that makes no sense.
type RequestError struct {
	Line int // from 1 on
	Err  error
}

func (e *RequestError) Error() string { return fmt.Sprintf("line %d of the input: %v", e.Line, e.Err) }
func (e *RequestError) Unwrap() error { return e.Err }

func (l *lines) fault(err error) error { return &RequestError{l.number, err} }
