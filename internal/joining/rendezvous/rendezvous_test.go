package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/test/leak"
)

var key = []byte("the secret of this job, 32 bytes")

// serve starts a server of size ranks on the loopback. At the end of the test it checks that nothing of the server, or
// of its sessions, is left.
func serve(t *testing.T, size int) (s *Server, addr string) {
	t.Helper()
	before := leak.Now()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(key, size)
	s.successionTime, s.lossTime = 300*time.Millisecond, 50*time.Millisecond
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		before.Check(t)
	})
	return s, l.Addr().String()
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func options(rank, size int) Options {
	return Options{Rank: rank, Size: size, Host: fmt.Sprintf("node%d", rank), PID: 100 + rank, Generation: 1}
}

func join(t *testing.T, addr string, o Options) *Session {
	t.Helper()
	s, err := Join(bounded(t), []string{addr}, key, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func joinAll(t *testing.T, addr string, size int) []*Session {
	t.Helper()
	all := make([]*Session, size)
	for r := range all {
		all[r] = join(t, addr, options(r, size))
	}
	return all
}

// begin runs Exchange in the background.
func begin(ctx context.Context, s *Session, name string, value string) <-chan error {
	c := make(chan error, 1)
	go func() {
		_, err := s.Exchange(ctx, name, []byte(value))
		c <- err
	}()
	return c
}

// contributed waits until n ranks wait in one exchange.
func contributed(s *Server, n int) {
	for {
		s.mu.Lock()
		for _, g := range s.gens {
			for _, x := range g.exchanges {
				if len(x.values) == n {
					s.mu.Unlock()
					return
				}
			}
		}
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

func mustSay(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// Values of every size, from none to the largest, reach every rank.
func TestExchangeGathersEveryonesValues(t *testing.T) {
	for _, c := range []struct{ ranks, large int }{
		{1, MaxValue},
		{2, MaxValue},
		{5, MaxValue},
		{33, 4000}, // several frames, although values are small
	} {
		t.Run(fmt.Sprintf("%d ranks, up to %d bytes", c.ranks, c.large), func(t *testing.T) {
			_, addr := serve(t, c.ranks)
			var wg sync.WaitGroup
			for r, s := range joinAll(t, addr, c.ranks) {
				wg.Go(func() {
					// The second name is used before the first one is done on other ranks, and names repeat.
					for _, bytes := range []func(rank int) int{
						func(rank int) int { return rank },
						func(int) int { return 0 },
						func(int) int { return c.large },
					} {
						exchangeBytes(t, s, r, "join", bytes)
						exchangeBytes(t, s, r, "knobs", bytes)
					}
				})
			}
			wg.Wait()
		})
	}
}

// exchangeBytes contributes size(rank) bytes, and checks the values of the other ranks.
func exchangeBytes(t *testing.T, s *Session, rank int, name string, size func(rank int) int) {
	value := func(r int) []byte { return bytes.Repeat([]byte{byte(r)}, size(r)) }
	got, err := s.Exchange(bounded(t), name, value(rank))
	if err != nil {
		t.Errorf("rank %d, %q: %v", rank, name, err)
	}
	for r, v := range got {
		if v == nil || !bytes.Equal(v, value(r)) {
			t.Errorf("rank %d, %q: %d bytes from rank %d, want %d", rank, name, len(v), r, size(r))
		}
	}
}

func TestTooLargeAValueIsRefused(t *testing.T) {
	_, addr := serve(t, 1)
	s := join(t, addr, options(0, 1))
	_, err := s.Exchange(bounded(t), "x", make([]byte, MaxValue+1))
	mustSay(t, err, "65537", "65536")
}

func TestWhoIsMissingIsNamed(t *testing.T) {
	srv, addr := serve(t, 4)
	srv.Started(3, "node3", 4711)
	join(t, addr, options(2, 4)) // it joins, but does not come to the exchange
	patient := begin(bounded(t), join(t, addr, options(1, 4)), "join", "v")
	contributed(srv, 1)
	zero := join(t, addr, options(0, 4))
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	hasty := begin(short, zero, "join", "v")

	err := <-hasty
	mustSay(t, err, `rendezvous "join": waited `,
		"s for rank 2 of 4 (joined from host node2, pid 102, but has not come this far), ",
		"rank 3 of 4 (not heard of, started on host node3, pid 4711); ranks 0, 1 are there")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not DeadlineExceeded", err)
	}
	// The patient rank gets the findings of the first one.
	mustSay(t, <-patient, `rendezvous "join": rank 0 on host node0 waited `, "s for rank 2 of 4 (joined from",
		"rank 3 of 4 (not heard of")
	if got := fmt.Sprint(srv.Joined(), srv.Missing()); got != "[0 1 2] [3]" {
		t.Errorf("joined and missing: %s", got)
	}
}

func TestRanksInAnotherGenerationAreNamed(t *testing.T) {
	_, addr := serve(t, 2)
	a := join(t, addr, options(0, 2))
	o := options(1, 2)
	o.Generation = 2
	b := join(t, addr, o)
	if a.Generation() == b.Generation() {
		t.Fatal("two generations have one number")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	mustSay(t, <-begin(ctx, a, "join", ""), "rank 1 of 2 (on host node1, pid 101, joined only the earlier or later "+
		"initialisation 2)", "rank 0 is there")
}

func TestCancelledExchangeReturns(t *testing.T) {
	_, addr := serve(t, 2)
	ctx, cancel := context.WithCancel(context.Background())
	c := begin(ctx, join(t, addr, options(0, 2)), "join", "")
	cancel()
	if err := <-c; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDeathEndsExchangesAndIsNewsToAll(t *testing.T) {
	srv, addr := serve(t, 3)
	a, b := join(t, addr, options(0, 3)), join(t, addr, options(1, 3))
	news := make(chan Death, 1)
	b.OnDeath(func(d Death) { news <- d })
	waiting := begin(bounded(t), a, "join", "")
	srv.Died(Death{Rank: 2, Host: "node2", PID: 4711, Signal: 9, Stderr: "oh"})

	const text = "rank 2 on host node2 (pid 4711) was killed by signal 9 (SIGKILL) before hvd.init()"
	err := <-waiting
	mustSay(t, err, `rendezvous "join": `+text)
	if d := (Death{}); !errors.As(err, &d) || d.Signal != 9 || d.Stderr != "oh" {
		t.Errorf("the Death is not in %v", err)
	}
	if d := <-news; d.String() != text {
		t.Errorf("news: %v", d)
	}
	// A rank that is not waiting yet fails when it begins to wait, in this generation and in any other.
	mustSay(t, <-begin(bounded(t), b, "other", ""), text)
	o := options(0, 3)
	o.Generation = 2
	c := join(t, addr, o)
	mustSay(t, <-begin(bounded(t), c, "join", ""), text)
	c.OnDeath(func(d Death) { news <- d })
	if d := <-news; d.Rank != 2 {
		t.Errorf("late news: %v", d)
	}
}

func TestExitBeforeInitFailsTheOthers(t *testing.T) {
	srv, addr := serve(t, 2)
	waiting := begin(bounded(t), join(t, addr, options(0, 2)), "join", "")
	srv.Died(Death{Rank: 1, Host: "h", PID: 5})
	mustSay(t, <-waiting, "rank 1 on host h (pid 5) exited with code 0 before hvd.init()")
}

func TestOrderlyExitIsNoFailureButEndsHopelessWaits(t *testing.T) {
	srv, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	news := make(chan Death, 1)
	all[0].OnDeath(func(d Death) { news <- d })
	all[1].Close()
	d := srv.Died(Death{Rank: 1, Host: "h", PID: 5})
	if d.NeverJoined || d.Failed() {
		t.Errorf("%+v", d)
	}
	if d := <-news; !d.InOrder || d.Rank != 1 {
		t.Errorf("news: %+v", d)
	}
	mustSay(t, <-begin(bounded(t), all[0], "x", ""), "rank 1 on host node1 (pid 101) has left")
	o := options(0, 2)
	o.Generation = 2
	mustSay(t, <-begin(bounded(t), join(t, addr, o), "x", ""), "rank 1 on host h (pid 5) exited with code 0")
}

func TestExitWithoutLeavingIsNews(t *testing.T) {
	srv, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	news := make(chan Death, 1)
	all[0].OnDeath(func(d Death) { news <- d })
	all[1].conn.Close() // as the kernel does when a process exits
	srv.Died(Death{Rank: 1, Host: "h", PID: 5})
	if d := <-news; d.Rank != 1 || d.Failed() || d.NeverJoined {
		t.Errorf("%+v", d)
	}
}

func TestReportTravelsWithTheDeathAndTheFarewell(t *testing.T) {
	srv, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	waiting := begin(bounded(t), all[0], "x", "")
	all[1].Report("tensor grad.7: shapes differ")
	all[1].Report("a later one, which does not count")
	all[1].Close()
	mustSay(t, <-waiting, "rank 1 on host node1 (pid 101) has left; it had reported: tensor grad.7: shapes differ")
	d := srv.Died(Death{Rank: 1, Host: "node1", PID: 101, ExitCode: 1})
	if d.Reason != "tensor grad.7: shapes differ" {
		t.Errorf("reason %q", d.Reason)
	}
}

func TestLostConnectionOfAMemberEndsTheWait(t *testing.T) {
	_, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	waiting := begin(bounded(t), all[0], "x", "")
	all[1].conn.Close()
	mustSay(t, <-waiting, "rank 1 on host node1 (pid 101) has closed its connection")
}

func TestDifferentRanksAreNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		says   string
	}{
		{"size", func(o *Options) { o.Size = 8 }, "rank 1 on host node1 was started as one of 8 ranks, but " +
			"this job has 2"},
		{"protocol", func(o *Options) { o.protocol = 99 }, "rank 1 on host node1 speaks protocol version 99, " +
			"the launcher 5"},
		{"shape", func(o *Options) { o.shape = "0badc0de" }, "rank 1 on host node1 has another build of gorovod, " +
			"whose messages differ (0badc0de"},
		{"rank", func(o *Options) { o.Rank = 5; o.Size = 8 }, "rank 5 on host node1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, addr := serve(t, 2)
			waiting := begin(bounded(t), join(t, addr, options(0, 2)), "join", "")
			o := options(1, 2)
			c.change(&o)
			_, err := Join(bounded(t), []string{addr}, key, o)
			mustSay(t, err, c.says)
			mustSay(t, <-waiting, c.says)
		})
	}
	t.Run("arch", func(t *testing.T) {
		_, addr := serve(t, 2)
		o := options(0, 2)
		o.Arch = "riscv64"
		a := begin(bounded(t), join(t, addr, o), "join", "")
		b := begin(bounded(t), join(t, addr, options(1, 2)), "join", "")
		mustSay(t, <-a, "rank 1 on host node1 runs on", "rank 0 on host node0 on riscv64")
		mustSay(t, <-b, "riscv64")
	})
}

// A rank that joins late hears of a refused rank by its death, which says why it was refused.
func TestADifferentRankIsNamedAfterItsDeath(t *testing.T) {
	srv, addr := serve(t, 2)
	o := options(1, 2)
	o.shape = "0badc0de"
	if _, err := Join(bounded(t), []string{addr}, key, o); err == nil {
		t.Fatal("it has joined")
	}
	d := srv.Died(Death{Rank: 1, Host: "node1", PID: 101, ExitCode: 1})
	if !strings.Contains(d.Reason, "another build") {
		t.Errorf("reason %q", d.Reason)
	}
	mustSay(t, <-begin(bounded(t), join(t, addr, options(0, 2)), "join", ""), "rank 1 on host node1",
		"has another build of gorovod, whose messages differ (0badc0de")
}

func TestTwoProcessesOfOneRank(t *testing.T) {
	_, addr := serve(t, 1)
	join(t, addr, options(0, 1))
	_, err := Join(bounded(t), []string{addr}, key, options(0, 1))
	mustSay(t, err, "rank 0 has already joined from host node0 (pid 100)")
}

// A rank's command may run two programs, one after the other. The second program meets the others' second, under a
// number of its own.
func TestProgramsInSequence(t *testing.T) {
	_, addr := serve(t, 2)
	var numbers []uint64
	for range 3 {
		all := joinAll(t, addr, 2)
		a := begin(bounded(t), all[0], "join", "")
		if err := <-begin(bounded(t), all[1], "join", ""); err != nil {
			t.Fatal(err)
		}
		if err := <-a; err != nil {
			t.Fatal(err)
		}
		if all[0].Generation() != all[1].Generation() {
			t.Fatal("the ranks do not agree on the generation")
		}
		numbers = append(numbers, all[0].Generation())
		for _, s := range all {
			s.Close()
		}
	}
	if fmt.Sprint(numbers) != "[1 2 3]" {
		t.Errorf("numbers %v", numbers)
	}
}

func TestWrongSecret(t *testing.T) {
	_, addr := serve(t, 1)
	_, err := Join(bounded(t), []string{addr}, []byte("another job's secret"), options(0, 1))
	if !errors.Is(err, auth.ErrProof) {
		t.Errorf("got %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = Join(bounded(t), []string{l.Addr().String()}, key, options(0, 1))
	mustSay(t, err, "the launcher does not answer")
}

// A listener that never answers.
func TestJoinEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = Join(ctx, []string{l.Addr().String()}, key, options(0, 1))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestLauncherLost(t *testing.T) {
	srv, addr := serve(t, 2)
	s := join(t, addr, options(0, 2))
	waiting := begin(bounded(t), s, "x", "")
	lost := make(chan error, 2)
	s.OnLost(func(err error) { lost <- err })
	srv.Close()
	for _, err := range []error{<-waiting, <-lost} {
		if !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	}
	_, err := s.Exchange(bounded(t), "y", nil)
	if !errors.Is(err, ErrLost) {
		t.Errorf("afterwards: %v", err)
	}
	s.OnLost(func(err error) { lost <- err })
	if text := (<-lost).Error(); !strings.HasPrefix(text, "the launcher is gone") {
		t.Errorf("the error is %q", text)
	}
}

// Where a rank serves, it is named, by the best name that the session knows.
func TestServingRankLost(t *testing.T) {
	for name, want := range map[string]string{
		"":                 "rank 0, which serves the rendezvous, is gone",
		"rank 0 on host h": "rank 0 on host h, which serves the rendezvous, is gone",
	} {
		srv, addr := serve(t, 1)
		srv.ServedBy = "rank 0"
		s := join(t, addr, options(0, 1))
		if name != "" {
			s.NameServer(name)
		}
		srv.Close()
		lost := make(chan error, 1)
		s.OnLost(func(err error) { lost <- err })
		if err := <-lost; !errors.Is(err, ErrLost) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
		if _, err := s.Ask(bounded(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a question: %q, want %q", err, want)
		}
	}
}

func TestStrangersDoNotDisturb(t *testing.T) {
	srv, addr := serve(t, 2)
	for i := range 2 * (maxStrangers + 2) { // more than may be unproved at a time
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		switch i % 4 {
		case 0:
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a scanner of ports\r\n\r\n")
		case 1:
			conn.(*net.TCPConn).CloseWrite()
		}
	}
	all := joinAll(t, addr, 2)
	a := begin(bounded(t), all[0], "join", "")
	b := begin(bounded(t), all[1], "join", "")
	if err := errors.Join(<-a, <-b); err != nil {
		t.Fatal(err)
	}
	if n := srv.lobby.Len(); n > maxStrangers+2 {
		t.Errorf("%d strangers are kept", n)
	}
}

// A rank that knows the secret but breaks the rules harms only itself.
func TestBrokenFramesEndOnlyTheirConnection(t *testing.T) {
	for _, junk := range []string{
		"\xff\xff\xff\xff",
		"\x00\x00\x00\x02{]",
		"\x00\x00\x00\x10{}",
		"\x00\x00\x00\x0f{\"Type\":\"what\"}",
	} {
		_, addr := serve(t, 2)
		a := join(t, addr, options(0, 2))
		b := join(t, addr, options(1, 2))
		waiting := begin(bounded(t), a, "x", "")
		b.conn.Write([]byte(junk))
		if junk == "\x00\x00\x00\x10{}" {
			b.conn.(*net.TCPConn).CloseWrite()
		}
		mustSay(t, <-waiting, "rank 1 on host node1 (pid 101) has closed its connection")
	}
}

func TestDescriptorsAreTracked(t *testing.T) {
	_, addr := serve(t, 1)
	open := map[int]bool{}
	var log []string
	o := options(0, 1)
	o.TrackFD = func(fd int, isOpen bool) {
		if open[fd] == isOpen {
			t.Errorf("descriptor %d reported twice as %v", fd, isOpen)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			t.Errorf("descriptor %d is not open when reported: %v", fd, err)
		}
		open[fd] = isOpen
		log = append(log, fmt.Sprint(isOpen))
	}
	s := join(t, addr, o)
	s.Close()
	s.Close()
	if got := strings.Join(log, " "); got != "true false" {
		t.Errorf("reported %s", got)
	}
}

func TestDeathReads(t *testing.T) {
	for want, d := range map[string]Death{
		"rank 2 on host node1 (pid 4711) was killed by signal 9 (SIGKILL)": {Rank: 2, Host: "node1",
			PID: 4711, Signal: 9},
		"rank 0 on host a (pid 1) exited with code 1": {Host: "a", PID: 1,
			ExitCode: 1},
		"rank 1 on host a (pid 1) exited with code 0 before hvd.init()": {Rank: 1, Host: "a",
			PID: 1, NeverJoined: true},
		"rank 1 on host a (pid 1) was killed by signal 40 (signal 40)": {Rank: 1, Host: "a",
			PID: 1, Signal: 40},
		"rank 0 on host a (pid 1) exited with code 1; it had reported: shapes of w1 differ": {Host: "a", PID: 1,
			ExitCode: 1, Reason: "shapes of w1 differ"},
	} {
		if got := d.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRankLists(t *testing.T) {
	for want, ranks := range map[string][]int{
		"rank 7 is":               {7},
		"ranks 0, 1, 2 are":       {0, 1, 2},
		"ranks 0-5, 7, 9, 10 are": {0, 1, 2, 3, 4, 5, 7, 9, 10},
	} {
		if got := are(ranks); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Texts of any length and any bytes are cut to fit into frames.
func TestOverlongTextsTravelCut(t *testing.T) {
	srv, addr := serve(t, 2)
	long := strings.Repeat("\x00<", 200<<10)
	o := options(0, 2)
	o.Host = long
	s := join(t, addr, o)
	srv.Started(1, long, 7)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	mustSay(t, <-begin(ctx, s, "x", ""), "rank 1 of 2")
	s.Report(long)
	news := make(chan Death, 1)
	s.OnDeath(func(d Death) { news <- d })
	srv.Died(Death{Rank: 1, Host: long, Signal: 9, Stderr: long})
	if d := <-news; !strings.HasPrefix(d.Stderr, `\x00<`) || len(d.Stderr) > maxText+8 {
		t.Errorf("%d bytes of stderr", len(d.Stderr))
	}
}

func FuzzDecode(f *testing.F) {
	frame, _ := encode(message{Type: typeValues, Name: "x", Values: [][]byte{{1}, nil}})
	f.Add(frame)
	long, _ := encode(message{Type: typeValues, Name: "x", Values: [][]byte{make([]byte, 600)}})
	f.Add(long)
	f.Add(append([]byte{0, 0, 0, 6}, "v\x00\x00\x00\x00\x09"...)) // more values than bytes
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := decode(bytes.NewReader(in))
		if err != nil || in[4] != valuesPrefix && in[4] != deflatedPrefix {
			return
		}
		again, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decode(bytes.NewReader(again)); err != nil || !reflect.DeepEqual(m, back) {
			t.Fatalf("%v became %v, %v", m, back, err)
		}
	})
}

// Among the addresses one has no listener, one does not answer, one speaks another protocol, and one has another job.
// The rank finds the server, and the server hears of the rank once.
func TestTheServerIsFoundByItsProof(t *testing.T) {
	srv, addr := serve(t, 1)
	foreign, other := listening(t), listening(t)
	go func() {
		for {
			c, err := foreign.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n and more than the length of an "+
				"answer, which is what is read of it")
			c.Close()
		}
	}()
	stranger := NewServer([]byte("another job's secret"), 1)
	go stranger.Serve(other)
	defer stranger.Close()
	nobody := listening(t)
	nobody.Close()
	silent := listening(t) // it accepts connections, and says nothing
	candidates := []string{nobody.Addr().String(), foreign.Addr().String(), other.Addr().String(),
		silent.Addr().String(), addr, addr}
	s, err := Join(bounded(t), candidates, key, options(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Addr() != addr || len(srv.Joined()) != 1 || len(stranger.Joined()) != 0 {
		t.Errorf("found at %s; ranks there %v, at the other job %v", s.Addr(), srv.Joined(), stranger.Joined())
	}
	_, err = Join(bounded(t), candidates[:3], key, options(0, 1))
	for _, want := range []string{"connection refused", candidates[1], auth.ErrForeign.Error(), candidates[2],
		auth.ErrProof.Error()} {
		mustSay(t, err, want)
	}
}

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Many missing ranks are listed by host.
func TestManyMissingRanksAreListedByHost(t *testing.T) {
	const size = 40
	srv, addr := serve(t, size)
	for r := range size {
		if r < 30 {
			srv.Started(r, fmt.Sprintf("n%d", r/10), 1000+r)
		}
	}
	s := join(t, addr, options(0, size))
	defer s.Close()
	late := join(t, addr, options(7, size))
	defer late.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := s.Exchange(ctx, "join", nil)
	for _, want := range []string{"39 of 40 ranks: ", "1-6, 8, 9 on host n0 (started, but not heard of)",
		"7 on host node7 (joined, but not come this far)",
		"10-19 on host n1 (started", "20-29 on host n2 (started", "30-39 (not heard of)",
		"rank 0 is there: 0 on host node0"} {
		mustSay(t, err, want)
	}
}
