package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/auth/certtest"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const limit = 20 * time.Second

var key = []byte("0123456789abcdef0123456789abcdef")

// job is a driver whose workers are goroutines of this process.
type job struct {
	t      *testing.T
	driver *Driver
	addr   string

	mu       sync.Mutex
	said     []string
	signals  map[int]syscall.Signal
	started  chan int
	outcomes chan Outcome
}

func start(t *testing.T, c membership.Config, hosts ...membership.Host) *job {
	t.Helper()
	return startWith(t, c, auth.Certificates{}, hosts...)
}

// startWith is start with certificates for the driver.
func startWith(t *testing.T, c membership.Config, certs auth.Certificates, hosts ...membership.Host) *job {
	t.Helper()
	j := &job{t: t, signals: map[int]syscall.Signal{}, started: make(chan int, 64), outcomes: make(chan Outcome, 1)}
	if c.Timeout == 0 {
		c.Timeout = limit
	}
	if c.Patience == 0 {
		c.Patience = limit
	}
	c.ResetLimit, c.Fixed, c.Random = -1, true, func() float64 { return 0.5 }
	j.driver = New(Options{Config: c, Key: key, Certificates: certs, Hosts: hosts, Grace: 50 * time.Millisecond,
		Start: func(s membership.Start) {
			j.driver.Started(s.Worker, 1000+s.Worker)
			j.started <- s.Worker
		},
		Signal: func(id int, sig syscall.Signal) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.signals[id] = sig
			if sig == syscall.SIGKILL {
				go j.ends(id, rendezvous.Death{Signal: int(sig)})
			}
		},
		Meet: func() ([]net.Listener, func(string) []string, error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, nil, err
			}
			return []net.Listener{l}, func(string) []string { return []string{l.Addr().String()} }, nil
		},
		Say:   j.say,
		Debug: func(string, ...any) {},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j.addr = l.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		j.driver.Serve(l)
	}()
	go func() {
		o, err := j.driver.Run(context.Background())
		if err != nil {
			t.Error(err)
		}
		j.outcomes <- o
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	return j
}

func (j *job) say(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said = append(j.said, fmt.Sprintf(format, args...))
}

func (j *job) ends(id int, d rendezvous.Death) {
	j.driver.Ended(id, d)
	j.driver.Gone(id)
}

func (j *job) outcome() Outcome {
	j.t.Helper()
	select {
	case o := <-j.outcomes:
		return o
	case <-time.After(limit):
		j.t.Fatal("the job does not end")
		panic("unreachable")
	}
}

// dial connects as the next worker that the driver starts.
func (j *job) dial() (int, *elastic.Client) {
	j.t.Helper()
	id := <-j.started
	c, err := elastic.Dial(context.Background(), []string{j.addr}, key, elastic.Options{Worker: id})
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(c.Close)
	return id, c
}

// place is a result of Register.
type place struct {
	elastic.Assignment
	err error
}

func register(c *elastic.Client, commit int64) <-chan place {
	got := make(chan place, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		a, err := c.Register(ctx, membership.Registration{Commit: commit})
		got <- place{a, err}
	}()
	return got
}

// meet joins the epoch's rendezvous.
func (p place) meet(t *testing.T) *rendezvous.Session {
	t.Helper()
	if p.err != nil {
		t.Fatal(p.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := rendezvous.Join(ctx, p.Addrs, elastic.EpochKey(key, p.Epoch), rendezvous.Options{Rank: p.Place.Rank,
		Size: p.Place.Size, Host: p.Place.Host, PID: 1, Generation: p.Epoch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Workers get places, meet, hear of a death by the epoch's rendezvous, and meet again. The driver announces a new
// worker to them.
func TestEpochs(t *testing.T) {
	j := start(t, membership.Config{NP: 2, Min: 1, Max: 2}, membership.Host{Name: "a", Slots: 3})
	_, first := j.dial()
	second, other := j.dial()
	waiting := register(first, -1)
	p, q := <-register(other, -1), <-waiting
	if p.Epoch != 1 || p.Place.Rank != 1 || q.Place.Rank != 0 || p.Place.Size != 2 || !p.Sync {
		t.Fatalf("got %+v and %+v", p, q)
	}
	session := q.meet(t)
	p.meet(t)
	if g := session.Generation(); g>>20 != 1 {
		t.Errorf("generation %d is not of epoch 1", g)
	}
	deaths := make(chan rendezvous.Death, 1)
	session.OnDeath(func(d rendezvous.Death) { deaths <- d })
	j.ends(second, rendezvous.Death{Host: "a", PID: 7, Signal: 9})
	if d := <-deaths; d.Rank != 1 || d.Signal != 9 {
		t.Errorf("the death of rank 1 came as %v", d)
	}
	third, newcomer := j.dial()
	r := <-register(first, 3)
	if r.err != nil || r.Epoch != 2 || r.Place.Size != 1 {
		t.Fatalf("got %+v", r)
	}
	// The old epoch's rendezvous is gone, and the old key opens nothing in the new one.
	if _, err := rendezvous.Join(context.Background(), r.Addrs, elastic.EpochKey(key, 1), rendezvous.Options{Rank: 0,
		Size: 1, Generation: 1}); err == nil {
		t.Error("the key of epoch 1 opens epoch 2")
	}
	joined := register(newcomer, -1)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := first.AwaitUpdates(ctx); err != nil {
		t.Fatalf("the newcomer is not announced: %v", err)
	}
	if stamp, update := first.Updates(); update != membership.Added || stamp == 0 {
		t.Errorf("the newcomer is announced as %v at %v", update, stamp)
	}
	if _, update := first.Updates(); update != membership.NoUpdate {
		t.Errorf("it is announced twice: %v", update)
	}
	expired, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := first.AwaitUpdates(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for nothing: %v", err)
	}
	back := <-register(first, 5)
	if n := <-joined; n.err != nil || n.Epoch != 3 || n.Place.Rank != 1 || back.Place.Rank != 0 {
		t.Errorf("got %+v and %+v", n, back)
	}
	j.ends(0, rendezvous.Death{})
	j.ends(third, rendezvous.Death{})
	if o := j.outcome(); o.Reason != "" || o.Failure != nil {
		t.Errorf("got %+v", o)
	}
	if err := first.AwaitUpdates(ctx); !errors.Is(err, elastic.ErrLost) {
		t.Errorf("waiting without a driver: %v", err)
	}
}

// A state that is on a disk survives all workers. Until a worker says that one is there, the job dies with them.
func TestSaved(t *testing.T) {
	for _, saved := range []bool{false, true} {
		j := start(t, membership.Config{NP: 1, Min: 1, Max: 1, Resumable: true}, membership.Host{Name: "a", Slots: 2})
		id, c := j.dial()
		<-register(c, -1)
		if saved {
			c.Saved(0)
		}
		<-register(c, 0) // the answer comes after the driver has heard of the commit
		j.ends(id, rendezvous.Death{Host: "a", Signal: 9})
		if !saved {
			if o := j.outcome(); o.Reason != "all workers have failed" {
				t.Errorf("without a commit on a disk it ends with %+v", o)
			}
			continue
		}
		select {
		case next := <-j.started:
			j.ends(next, rendezvous.Death{Host: "a", Signal: 9})
		case o := <-j.outcomes:
			t.Fatalf("with a commit on a disk it ends with %+v", o)
		}
		j.outcome() // there is no other slot
	}
}

// A worker that does not answer pings is ended, and gets no place when it goes on.
func TestSilence(t *testing.T) {
	j := start(t, membership.Config{NP: 2, Min: 1, Patience: 40 * time.Millisecond}, membership.Host{Name: "a",
		Slots: 2})
	_, first := j.dial()
	mute := <-j.started
	c, err := net.Dial("tcp", j.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := proveAs(c, mute); err != nil {
		t.Fatal(err)
	}
	frame, _ := elastic.Encode(elastic.Message{Type: elastic.TypeReady, Number: 1,
		Registration: &membership.Registration{Commit: -1}})
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	if p := <-register(first, -1); p.err != nil || p.Place.Size != 2 {
		t.Fatalf("got %+v", p)
	}
	if p := <-register(first, 0); p.err != nil || p.Place.Size != 1 {
		t.Fatalf("got %+v", p)
	}
	frame, _ = elastic.Encode(elastic.Message{Type: elastic.TypeReady, Number: 2,
		Registration: &membership.Registration{Commit: -1}})
	c.Write(frame)
	for {
		m, err := elastic.Decode(c)
		if err != nil {
			break // it has been killed, or has heard of its end
		}
		if m.Type == elastic.TypePlace && m.Number == 2 {
			t.Fatal("it has got a place")
		}
		if m.Type == elastic.TypeDismiss {
			break
		}
	}
	j.ends(0, rendezvous.Death{})
	if o := j.outcome(); o.Reason != "" {
		t.Errorf("got %+v", o)
	}
}

// Connections that break the protocol, or prove nothing, disturb no worker.
func TestStrangers(t *testing.T) {
	j := start(t, membership.Config{NP: 1, Min: 1}, membership.Host{Name: "a", Slots: 1})
	id, worker := j.dial()
	if _, err := elastic.Dial(context.Background(), []string{j.addr}, []byte("another job's secret"),
		elastic.Options{Worker: id}); err == nil {
		t.Error("another secret is taken")
	}
	for _, text := range []string{"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("x", 1<<16)} {
		if c, err := net.Dial("tcp", j.addr); err == nil {
			c.Write([]byte(text))
			c.Close()
		}
	}
	unknown, err := elastic.Dial(context.Background(), []string{j.addr}, key, elastic.Options{Worker: 99})
	if err == nil {
		if p := <-register(unknown, 5); !errors.Is(p.err, elastic.ErrLost) {
			t.Errorf("worker 99 got %+v", p)
		}
		unknown.Close()
	}
	if p := <-register(worker, -1); p.err != nil || p.Place.Size != 1 {
		t.Errorf("got %+v", p)
	}
	j.ends(id, rendezvous.Death{})
	j.outcome()
}

// Without TLS, the messages between a worker and the driver can be read on the way; with TLS they cannot.
func TestTLS(t *testing.T) {
	for _, tls := range []bool{false, true} {
		j := start(t, membership.Config{NP: 1, Min: 1}, membership.Host{Name: "a", Slots: 1})
		id := <-j.started
		spy := listenIn(t, j.addr)
		c, err := elastic.Dial(context.Background(), []string{spy.addr}, key, elastic.Options{Worker: id,
			TLS: certtest.Own(tls)})
		if err != nil {
			t.Fatal(err)
		}
		if p := <-register(c, 7); p.err != nil || p.Place.Size != 1 {
			t.Errorf("TLS %v: got %+v", tls, p)
		}
		j.driver.Interrupt(syscall.SIGTERM, "over")
		if p := <-register(c, 8); !errors.Is(p.err, elastic.ErrDismissed) { // so that both ends write more than once
			t.Errorf("TLS %v: got %+v", tls, p)
		}
		j.ends(id, rendezvous.Death{})
		j.outcome()
		c.Close()
		there, back := spy.heard()
		for what, heard := range map[string][]byte{`"ready"`: there, `"place"`: back} {
			if read := bytes.Contains(heard, []byte(what)); read == tls {
				t.Errorf("TLS %v: %s can be read: %v", tls, what, read)
			}
		}
	}
}

// spy passes one connection on, and records both directions.
type spy struct {
	addr  string
	ended chan struct{}
	said  [2]bytes.Buffer
}

func listenIn(t *testing.T, to string) *spy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &spy{addr: l.Addr().String(), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		var ends [2]net.Conn
		var err error
		if ends[0], err = l.Accept(); err != nil {
			return
		}
		defer ends[0].Close()
		if ends[1], err = net.Dial("tcp", to); err != nil {
			return
		}
		var both sync.WaitGroup
		for i := range ends {
			both.Go(func() {
				io.Copy(io.MultiWriter(&s.said[i], ends[1-i]), ends[i])
				ends[1-i].Close()
			})
		}
		both.Wait()
	}()
	return s
}

// heard waits for the end of the connection, and returns what was recorded.
func (s *spy) heard() (there, back []byte) {
	<-s.ended
	return s.said[0].Bytes(), s.said[1].Bytes()
}

// The first failure of the last epoch counts, and so does its exit code.
func TestOutcome(t *testing.T) {
	j := start(t, membership.Config{NP: 2, Min: 2}, membership.Host{Name: "a", Slots: 2})
	_, first := j.dial()
	second, other := j.dial()
	p := register(first, -1)
	<-register(other, -1)
	<-p
	j.ends(second, rendezvous.Death{Host: "a", ExitCode: 3, Stderr: "boom"})
	left := <-register(first, 2)
	if !errors.Is(left.err, elastic.ErrDismissed) {
		t.Errorf("got %+v", left)
	}
	o := j.outcome()
	if o.Failure == nil || o.Failure.Worker != second || o.Failure.Death.ExitCode != 3 ||
		o.Failure.Death.Stderr != "boom" || !strings.Contains(o.Reason, "slots") {
		t.Errorf("got %+v", o)
	}
	// The worker never met others in the rendezvous, but it had come for its place.
	if s := o.Failure.String(); s != "worker 1 on host a exited with code 3" || o.Earlier {
		t.Errorf("got %q %v", s, o.Earlier)
	}
}

// If a job survives a failure, the failure that ends it later is not the first. A worker that dies alone was
// initialized.
func TestOutcomeAfterAnotherEpoch(t *testing.T) {
	j := start(t, membership.Config{NP: 2, Min: 1}, membership.Host{Name: "a", Slots: 2})
	first, stays := j.dial()
	second, other := j.dial()
	p := register(stays, -1)
	<-register(other, -1)
	<-p
	j.ends(second, rendezvous.Death{Host: "a", ExitCode: 3})
	if p := <-register(stays, 2); p.err != nil || p.Place.Size != 1 {
		t.Fatalf("got %+v", p)
	}
	j.ends(first, rendezvous.Death{Host: "a", ExitCode: 4})
	o := j.outcome()
	if o.Failure == nil || o.Failure.Worker != first || !o.Earlier ||
		o.Failure.String() != "worker 0 on host a exited with code 4" {
		t.Errorf("got %+v", o)
	}
}

// The user hears of a failing script once for each of its errors, and when it works again.
func TestDiscoveryErrors(t *testing.T) {
	answers := make(chan error)
	var said []string
	d := New(Options{DiscoverEvery: time.Microsecond,
		Discover: func(ctx context.Context) ([]membership.Host, error) {
			select {
			case err := <-answers:
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.discover(ctx, nil)
	}()
	one, two := errors.New("exit status 1"), errors.New("no such file")
	for _, err := range []error{nil, one, one, two, nil, nil, one} {
		answers <- err
	}
	cancel()
	<-ended
	want := []string{
		"discover hosts: exit status 1; it is tried again",
		"discover hosts: no such file; it is tried again",
		"discover hosts: it works again",
	}
	if !slices.Equal(said[:min(len(said), len(want))], want) || len(said) > len(want)+1 {
		t.Errorf("got %q", said)
	}
}

// An interruption ends a search for hosts that would not end by itself.
func TestInterruptDuringTheFirstDiscovery(t *testing.T) {
	searching := make(chan struct{})
	d := New(Options{Config: membership.Config{NP: 1, Min: 1}, DiscoverEvery: time.Second, FirstDiscovery: Limit{limit,
		"--start-timeout"}, SlowDiscovery: limit,
		Discover: func(ctx context.Context) ([]membership.Host, error) {
			close(searching)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	go func() {
		<-searching
		d.Interrupt(syscall.SIGINT, "interrupted")
	}()
	if o, err := d.Run(context.Background()); err != nil || o.Reason != "interrupted" {
		t.Errorf("got %+v, %v", o, err)
	}
}

// A first search that does not end in time ends the job, and says which option is the limit.
func TestFirstDiscoveryHangs(t *testing.T) {
	d := New(Options{Config: membership.Config{NP: 1, Min: 1}, DiscoverEvery: time.Second,
		FirstDiscovery: Limit{time.Millisecond, "--start-timeout"}, SlowDiscovery: limit,
		Discover: func(ctx context.Context) ([]membership.Host, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}})
	want := "discover hosts: it has not ended within 1ms (--start-timeout)"
	if _, err := d.Run(context.Background()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// While a first search takes long, the user hears that it is under way.
func TestFirstDiscoveryIsSlow(t *testing.T) {
	said := make(chan string, 1)
	found := errors.New("found nothing")
	d := New(Options{Config: membership.Config{NP: 1, Min: 1}, DiscoverEvery: time.Second, FirstDiscovery: Limit{limit,
		"--elastic-timeout"}, SlowDiscovery: time.Millisecond,
		Discover: func(context.Context) ([]membership.Host, error) {
			<-said
			return nil, found
		},
		Say: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
	})
	if _, err := d.Run(context.Background()); !errors.Is(err, found) {
		t.Errorf("got %v", err)
	}
}

// An interruption reaches all workers; those that do not end are killed.
func TestInterrupt(t *testing.T) {
	j := start(t, membership.Config{NP: 2, Min: 2}, membership.Host{Name: "a", Slots: 2})
	<-j.started
	<-j.started
	j.driver.Interrupt(syscall.SIGINT, "interrupted")
	if o := j.outcome(); o.Reason != "interrupted" {
		t.Errorf("got %+v", o)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for id := range 2 {
		if j.signals[id] != syscall.SIGKILL {
			t.Errorf("worker %d got %v last", id, j.signals[id])
		}
	}
}

// A member that cannot join an epoch says so, and members that have joined hear why.
func TestOneCannotJoin(t *testing.T) {
	j := start(t, membership.Config{NP: 2, Min: 2}, membership.Host{Name: "a", Slots: 2})
	_, first := j.dial()
	_, other := j.dial()
	waiting := register(first, -1)
	<-register(other, -1)
	session := (<-waiting).meet(t)
	deaths := make(chan rendezvous.Death, 1)
	session.OnDeath(func(d rendezvous.Death) { deaths <- d })
	again := make(chan place, 1)
	go func() {
		a, err := other.Register(context.Background(), membership.Registration{Commit: -1,
			Trouble: "rank 0 cannot be reached"})
		again <- place{a, err}
	}()
	if d := <-deaths; d.String() != "rank 1 on host a (pid 1001) could not join the others: rank 0 cannot be reached" {
		t.Errorf("rank 0 hears: %v", d)
	}
	if p := <-register(first, -1); p.err != nil || p.Epoch != 2 {
		t.Errorf("got %+v", p)
	}
	if p := <-again; p.err != nil || p.Epoch != 2 {
		t.Errorf("got %+v", p)
	}
	j.ends(0, rendezvous.Death{})
	j.ends(1, rendezvous.Death{})
	j.outcome()
}

// A driver with certificates lets in only workers with certificates of its CA, and says whom it has turned away.
func TestCertificates(t *testing.T) {
	ca, later := certtest.NewCA(t), time.Now().Add(time.Hour)
	j := startWith(t, membership.Config{NP: 1, Min: 1}, ca.Issue(t.TempDir(), later),
		membership.Host{Name: "a", Slots: 1})
	id := <-j.started
	dial := func(c *auth.Certificates) (*elastic.Client, error) {
		return elastic.Dial(context.Background(), []string{j.addr}, key, elastic.Options{Worker: id, TLS: c})
	}
	strange, own := certtest.NewCA(t).Issue(t.TempDir(), later), ca.Issue(t.TempDir(), later)
	if _, err := dial(&strange); !errors.Is(err, auth.ErrCertificate) {
		t.Errorf("another CA's: %v", err)
	}
	plain, err := dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if p := <-register(plain, 7); p.err == nil || !strings.Contains(p.err.Error(), "there is none without TLS") {
		t.Errorf("without TLS: %+v", p)
	}
	c, err := dial(&own)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if p := <-register(c, 7); p.err != nil || p.Place.Size != 1 {
		t.Errorf("got %+v", p)
	}
	j.mu.Lock()
	said := strings.Join(j.said, "\n")
	j.mu.Unlock()
	for _, text := range []string{" at 127.0.0.1:", "certificate refused: there is none without TLS"} {
		if !strings.Contains(said, text) {
			t.Errorf("the driver says %q", said)
		}
	}
	j.ends(id, rendezvous.Death{})
	j.outcome()
}
