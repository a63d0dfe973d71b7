package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asked waits until the server has asked rank in generation 1.
func asked(t *testing.T, srv *Server, rank int) {
	t.Helper()
	for bounded(t).Err() == nil {
		srv.mu.Lock()
		yes := srv.gens[0].members[rank].asked
		srv.mu.Unlock()
		if yes {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("rank %d has not been asked", rank)
}

// stopped makes a rank answer nothing until goOn is called.
func stopped(s *Session) (goOn func()) {
	stop := make(chan struct{})
	s.OnAsk(func() []byte { <-stop; return []byte("late") })
	return sync.OnceFunc(func() { close(stop) })
}

func mustAnswer(t *testing.T, got [][]byte, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, v := range got {
		if v == nil {
			text += "nil "
		} else {
			text += fmt.Sprintf("%q ", v)
		}
	}
	if text != want+" " {
		t.Errorf("answers %s, want %s", text, want)
	}
}

func TestEveryoneAnswers(t *testing.T) {
	for _, c := range []struct{ ranks, large int }{
		{1, MaxValue},
		{2, MaxValue},
		{17, 8000}, // several writes, although values are small
	} {
		t.Run(fmt.Sprintf("%d ranks, up to %d bytes", c.ranks, c.large), func(t *testing.T) {
			srv, addr := serve(t, c.ranks)
			srv.freshTime = 0
			all := joinAll(t, addr, c.ranks)
			answer := func(r int) []byte { return bytes.Repeat([]byte{byte(r)}, min(r, 1)*(c.large-r)) }
			var asks atomic.Int64
			for r, s := range all {
				s.OnAsk(func() []byte { asks.Add(1); return answer(r) })
			}
			var wg sync.WaitGroup
			for _, s := range all {
				wg.Go(func() {
					for range 3 {
						askAll(t, s, answer)
					}
				})
			}
			wg.Wait()
			if n := asks.Load(); n < int64(3*c.ranks) || n > int64(3*c.ranks*c.ranks) {
				t.Errorf("%d asks of %d ranks made them answer %d times", 3*c.ranks, c.ranks, n)
			}
		})
	}
}

func askAll(t *testing.T, s *Session, answer func(rank int) []byte) {
	got, err := s.Ask(bounded(t))
	if err != nil {
		t.Error(err)
	}
	for r, v := range got {
		if v == nil || !bytes.Equal(v, answer(r)) {
			t.Errorf("%d bytes (nil: %t) from rank %d", len(v), v == nil, r)
		}
	}

}

func TestAnswersAreCutAndEmptyWithoutOnAsk(t *testing.T) {
	_, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	all[0].OnAsk(func() []byte { return make([]byte, MaxValue+100) })
	got, err := all[1].Ask(bounded(t))
	if err != nil || len(got[0]) != MaxValue || got[1] == nil || len(got[1]) != 0 {
		t.Errorf("%d and %d bytes, %v", len(got[0]), len(got[1]), err)
	}
}

// Each Ask gets answers that were made after it was called.
func TestAnswersAreNewWhereNoneMayBeShared(t *testing.T) {
	srv, addr := serve(t, 1)
	srv.freshTime = 0
	s := join(t, addr, options(0, 1))
	n := 0
	s.OnAsk(func() []byte { n++; return fmt.Append(nil, n) })
	for i := range 5 {
		got, err := s.Ask(bounded(t))
		mustAnswer(t, got, err, fmt.Sprintf(`"%d"`, i+1))
	}
}

func TestAsksCloseTogetherShareTheAnswers(t *testing.T) {
	srv, addr := serve(t, 2)
	srv.freshTime = time.Hour
	all := joinAll(t, addr, 2)
	for _, s := range all {
		n := 0
		s.OnAsk(func() []byte { n++; return fmt.Append(nil, n) })
	}
	for range 3 {
		for _, s := range all {
			got, err := s.Ask(bounded(t))
			mustAnswer(t, got, err, `"1" "1"`)
		}
	}
}

func TestWhoDoesNotAnswerIsNil(t *testing.T) {
	srv, addr := serve(t, 4) // rank 3 does not come
	srv.freshTime = 0
	zero, one, two := join(t, addr, options(0, 4)), join(t, addr, options(1, 4)), join(t, addr, options(2, 4))
	zero.OnAsk(func() []byte { return []byte("here") })
	goOn := stopped(two)
	defer goOn()

	// Rank 1 is gone, and rank 2 is stopped: Ask waits for its answer until the context ends.
	one.Close()
	for {
		srv.mu.Lock()
		n := len(srv.peers)
		srv.mu.Unlock()
		if n == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	got, err := zero.Ask(ctx)
	if got[0] == nil { // this rank's own answer, too, can be slower than that
		got[0] = []byte("here")
	}
	mustAnswer(t, got, err, `"here" nil nil nil`)

	// Rank 2 goes on: its answer to the one question serves the second Ask.
	asked(t, srv, 2)
	type result struct {
		got [][]byte
		err error
	}
	second := make(chan result)
	go func() {
		got, err := zero.Ask(bounded(t))
		second <- result{got, err}
	}()
	goOn()
	r := <-second
	mustAnswer(t, r.got, r.err, `"here" nil "late" nil`)
}

// countedListener counts the bytes that its connections send.
type countedListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.sent}, err
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// If all ranks ask one another why they wait, what the server sends grows with their number, and not with its square:
// equal answers are sent as one. Only the ranks that differ cost more.
func TestManyAskersCostWhatTheirAnswersDifferIn(t *testing.T) {
	const length, odd = 700, 2
	sentBy := func(ranks int) int64 {
		srv, _ := serve(t, ranks)
		srv.gatherTime = time.Hour
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var sent atomic.Int64
		served := make(chan error, 1)
		go func() { served <- srv.Serve(countedListener{l, &sent}) }()
		all := joinAll(t, l.Addr().String(), ranks)
		answer := func(r int) []byte { return bytes.Repeat([]byte{byte(min(r, odd))}, length) }
		for r, s := range all {
			s.OnAsk(func() []byte { return answer(r) })
		}
		before := sent.Load()
		var wg sync.WaitGroup
		for _, s := range all {
			wg.Go(func() { askAll(t, s, answer) })
		}
		wg.Wait()
		total := sent.Load() - before
		srv.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		return total
	}
	for _, ranks := range []int{8, 64} {
		// In base64, with the frames around it.
		if each, most := sentBy(ranks)/int64(ranks), int64((odd+1)*(length*4/3+60)+400); each > most {
			t.Errorf("%d ranks ask: the server sends %d bytes to each, at most %d are expected", ranks, each, most)
		}
	}
}

// A rank that leaves while others wait for its answer ends their wait.
func TestLeavingEndsTheWaitForAnAnswer(t *testing.T) {
	for _, how := range []string{"leaves", "dies"} {
		srv, addr := serve(t, 2)
		all := joinAll(t, addr, 2)
		defer stopped(all[1])()
		all[0].OnAsk(func() []byte { return []byte("here") })
		done := make(chan struct{})
		go func() {
			got, err := all[0].Ask(bounded(t))
			mustAnswer(t, got, err, `"here" nil`)
			close(done)
		}()
		asked(t, srv, 1)
		if how == "dies" {
			all[1].conn.Close()
		} else {
			all[1].Close()
		}
		<-done
	}
}

// A rank whose answer blocks still hears the news, takes part in exchanges, and asks.
func TestAStuckAnswerHoldsUpNothing(t *testing.T) {
	srv, addr := serve(t, 3)
	one, two := join(t, addr, options(0, 3)), join(t, addr, options(1, 3))
	defer stopped(two)()
	news := make(chan Death, 1)
	two.OnDeath(func(d Death) { news <- d })
	ctx, cancel := context.WithCancel(bounded(t))
	done := make(chan struct{})
	go func() { one.Ask(ctx); close(done) }()
	asked(t, srv, 1)
	srv.Died(Death{Rank: 2, Host: "h", Signal: 9})
	<-news
	short, stop := context.WithTimeout(bounded(t), 20*time.Millisecond)
	defer stop()
	if got, err := two.Ask(short); err != nil || got[1] != nil {
		t.Errorf("asked by the stuck one: %q, %v", got, err)
	}
	cancel()
	<-done
}

// Of several Asks at one time on one session, the last one's answers serve all. The number of such Asks is limited.
func TestAsksOnOneSession(t *testing.T) {
	srv, addr := serve(t, 2)
	srv.freshTime = 0
	all := joinAll(t, addr, 2)
	goOn := stopped(all[1])
	defer goOn()
	var wg sync.WaitGroup
	for range maxPending {
		wg.Go(func() {
			got, err := all[0].Ask(bounded(t))
			if err != nil || string(got[1]) != "late" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	for full := false; !full; time.Sleep(time.Millisecond) {
		all[0].mu.Lock()
		full = len(all[0].open) == maxPending
		all[0].mu.Unlock()
	}
	_, err := all[0].Ask(bounded(t))
	mustSay(t, err, "64 others are asking")
	goOn()
	wg.Wait()
	all[0].mu.Lock()
	defer all[0].mu.Unlock()
	if len(all[0].open) != 0 {
		t.Errorf("%d inquiries are left", len(all[0].open))
	}
}

func TestAskEndsWithTheSession(t *testing.T) {
	srv, addr := serve(t, 2)
	all := joinAll(t, addr, 2)
	defer stopped(all[1])()
	c := make(chan error)
	ask := func(s *Session) { _, err := s.Ask(bounded(t)); c <- err }
	go ask(all[0])
	asked(t, srv, 1)
	all[0].Close()
	if err := <-c; !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	go ask(all[1])
	asked(t, srv, 1)
	srv.Close()
	if err := <-c; !errors.Is(err, ErrLost) {
		t.Errorf("without the launcher: %v", err)
	}
	go ask(all[1])
	if err := <-c; !errors.Is(err, ErrLost) {
		t.Errorf("afterwards: %v", err)
	}
}

// Ranks of another generation are neither asked nor heard.
func TestGenerationsDoNotAnswerOneAnother(t *testing.T) {
	_, addr := serve(t, 2)
	first, other := join(t, addr, options(0, 2)), options(1, 2)
	other.Generation = 2
	second := join(t, addr, other)
	for _, s := range []*Session{first, second} {
		s.OnAsk(func() []byte { return fmt.Append(nil, s.Generation()) })
	}
	got, err := first.Ask(bounded(t))
	mustAnswer(t, got, err, `"1" nil`)
	got, err = second.Ask(bounded(t))
	mustAnswer(t, got, err, `nil "2"`)
}

// A rank that knows the secret but lies loses its connection; the others' Asks end.
func TestLyingAnswersEndOnlyTheirConnection(t *testing.T) {
	for name, m := range map[string]message{
		"unasked":   {Type: typeAnswer, Value: []byte("x")},
		"too large": {Type: typeAnswer, Value: make([]byte, MaxValue+1)},
		"question":  {Type: typeQuestion},
	} {
		t.Run(name, func(t *testing.T) {
			srv, addr := serve(t, 2)
			all := joinAll(t, addr, 2)
			all[0].OnAsk(func() []byte { return []byte("here") })
			if name != "unasked" {
				defer stopped(all[1])()
				go all[0].Ask(bounded(t))
				asked(t, srv, 1)
			}
			if err := all[1].write(m); err != nil {
				t.Fatal(err)
			}
			<-all[1].ended
			got, err := all[0].Ask(bounded(t))
			mustAnswer(t, got, err, `"here" nil`)
		})
	}
}

// False answers from the server (ranks out of range, answers to Asks that never were) do not harm the session.
func TestSessionIgnoresFalseAnswers(t *testing.T) {
	s := &Session{o: Options{Size: 2}}
	q := &inquiry{use: 2, answers: make([][]byte, 2), done: make(chan struct{})}
	s.open = []*inquiry{q}
	for _, m := range []message{
		{Type: typeAnswer, Spans: []int{0, 0}, Value: []byte("before it was announced")},
		{Type: typeAsking, Use: 1},
		{Type: typeAnswer, Spans: []int{0, 1}, Value: []byte("to another")},
		{Type: typeAnswered, Use: 1},
		{Type: typeAsking, Use: 2},
		{Type: typeAnswer},
		{Type: typeAnswer, Spans: []int{0}},
		{Type: typeAnswer, Spans: []int{-7, -1}},
		{Type: typeAnswer, Spans: []int{2, 1 << 40}},
		{Type: typeAnswer, Spans: []int{1, 0, 1, 1 << 40}},
		{Type: typeAnswer, Spans: []int{1, 1}, Value: []byte("again")},
	} {
		if !s.hear(m) {
			t.Errorf("%s is not taken", m.Type)
		}
	}
	mustAnswer(t, q.answers, nil, `nil ""`)
	s.hear(message{Type: typeAnswered, Use: 2})
	s.hear(message{Type: typeAnswered, Use: 2})
	<-q.done
}

// A rank that asks without end and reads nothing makes the server keep one survey, and does not slow the others down.
func TestAskerThatDoesNotReadIsBounded(t *testing.T) {
	srv, addr := serve(t, 2)
	srv.freshTime = time.Hour
	all := joinAll(t, addr, 2)
	for _, s := range all {
		s.OnAsk(func() []byte { return make([]byte, MaxValue) })
	}
	if _, err := all[0].Ask(bounded(t)); err != nil {
		t.Fatal(err)
	}
	all[1].mu.Lock() // its reader blocks at the next frame
	for use := range uint64(200) {
		if err := all[1].write(message{Type: typeAsk, Use: use + 1}); err != nil {
			all[1].mu.Unlock()
			t.Fatal(err)
		}
	}
	for range 3 {
		if got, err := all[0].Ask(bounded(t)); err != nil || len(got[1]) != MaxValue {
			t.Errorf("%d bytes, %v", len(got[1]), err)
		}
	}
	srv.mu.Lock()
	p := srv.gens[0].members[1]
	if p.queued > 64<<10 {
		t.Errorf("%d bytes wait for the rank that does not read", p.queued)
	}
	srv.mu.Unlock()
	all[1].mu.Unlock()
}
