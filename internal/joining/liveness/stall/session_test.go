package stall

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Over real sessions each waiting rank reports, and learns what the others wait for, though the others never call
// Check.
func TestOverSessions(t *testing.T) {
	secret := []byte("the secret of this job, 32 bytes")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const size = 3
	server := rendezvous.NewServer(secret, size)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Close(); <-served }()

	pending := [size][]Waiting{{waits("grad.1", 61*sec)}, {waits("grad.1", 62*sec)},
		{{Name: "eval", Op: "ALLGATHER", Since: 60 * sec}}}
	var logs [size][]string
	var inspectors [size]*Inspector
	for r := range size {
		s, err := rendezvous.Join(context.Background(), []string{l.Addr().String()}, secret, rendezvous.Options{Rank: r,
			Size: size, Host: "h", Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		b := newBench(t, 60*sec, 0, func(o *Options) {
			o.Rank, o.Ask, o.Log = r, s.Ask, slog.New(logged{lines: &logs[r]})
			o.Snapshot = func() []Waiting { return pending[r] }
			o.Members = func(int) []int { return []int{0, 1, 2} }
		})
		s.OnAsk(b.Answer)
		inspectors[r] = b.Inspector
	}
	for r, i := range inspectors {
		i.Check(pending[r][0].Since)
	}
	for _, i := range inspectors {
		i.wg.Wait()
	}
	for r := range 2 {
		if len(logs[r]) != 1 || !strings.Contains(logs[r][0], " seconds on ranks 0, 1; missing: rank 2\nMissing "+
			"ranks:\nrank 2 on host h: [grad.1]; it waits instead for eval (ALLGATHER) for 60 seconds") {
			t.Errorf("rank %d: %q", r, logs[r])
		}
	}
	if len(logs[2]) != 0 {
		t.Errorf("rank 2: %q", logs[2])
	}
}
