package world

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/test/output"
)

// A job over TCP goes on, with right results, and makes new connections, while strangers who have found its ports
// attack it. It names the strangers.
func TestStrangersCannotDisturb(t *testing.T) {
	for _, transport := range []string{"tcp", "tls"} {
		t.Run(transport, func(t *testing.T) { withstand(t, transport) })
	}
}

func withstand(t *testing.T, transport string) {
	crowd := 10000
	if raceDetector || testing.Short() || transport == "tls" {
		crowd = 1000
	}
	const seed, ranks = 4, 3
	t.Logf("seed %d", seed)
	before := listeningPorts(t)
	l := newLauncher(t, ranks)
	var told output.Buffer
	l.Knocks = auth.NewKnocks(func(text string) { told.Write([]byte("the launcher: " + text + "\n")) })
	log := slog.New(slog.NewTextHandler(&told, nil))
	var worlds [ranks]*World
	each(ranks, func(r int) {
		w, err := join(t.Context(), l.config(r, ranks, transport), 1, Options{Log: log})
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		worlds[r] = w
	})
	if t.Failed() {
		return
	}
	var ports []int
	for port := range listeningPorts(t) {
		if !before[port] {
			ports = append(ports, port)
		}
	}
	if len(ports) != 1+2*ranks { // the rendezvous, and two of each rank
		t.Errorf("%d listeners", len(ports))
	}
	over := attack(t, l, ports, crowd, seed)
	ended := endOf(over)
	each(ranks, func(r int) {
		for round := 0; !ended(r, round); round++ {
			if v, err := add(worlds[r], "x", float32(r+round%7)); err != nil || v != float32(3+3*(round%7)) {
				t.Errorf("rank %d, round %d: %v, %v", r, round, v, err)
				return
			}
			if round == 3 {
				connectAnew(t, worlds[r], r, ranks)
			}
		}
	})
	each(ranks, func(r int) { worlds[r].Leave(limit) })
	l.Close()
	checkTold(t, told.String())
}

// attack lets strangers come to all ports at once. The channel is closed when they have finished.
func attack(t *testing.T, l *launcher, ports []int, crowd int, seed uint64) <-chan struct{} {
	var attacks sync.WaitGroup
	for i, port := range ports {
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		for k, attack := range []func(*rand.Rand, string){scan, babble, hang, drip, impersonate} {
			attacks.Go(func() { attack(rand.New(rand.NewPCG(seed, uint64(i*100+k))), addr) })
		}
		attacks.Go(func() { overrun(addr, crowd/len(ports)) })
	}
	attacks.Go(func() {
		_, err := rendezvous.Join(t.Context(), []string{l.addr}, []byte("another job's secret"),
			rendezvous.Options{Size: 3, Generation: 1})
		if !errors.Is(err, auth.ErrProof) {
			t.Errorf("another job's rank: %v", err)
		}
	})
	over := make(chan struct{})
	go func() { attacks.Wait(); close(over) }()
	return over
}

// endOf tells a rank before each round whether the rounds have ended. Rank 0 sets the same end for all, after over is
// closed.
func endOf(over <-chan struct{}) func(rank, round int) bool {
	var end atomic.Int64
	end.Store(math.MaxInt64)
	return func(rank, round int) bool {
		if rank == 0 && end.Load() == math.MaxInt64 {
			select {
			case <-over:
				end.Store(int64(round) + 2) // the others are at most one round ahead
			default:
			}
		}
		return int64(round) >= end.Load()
	}
}

// connectAnew makes new connections: those of a set, and for messages.
func connectAnew(t *testing.T, w *World, rank, size int) {
	if _, err := w.Engine.AddSet([]int{0, 2}); err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
	if err := w.Send(t.Context(), (rank+1)%size, 7, 0, []byte{byte(rank), 9}); err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
	from, p := (rank+size-1)%size, make([]byte, 2)
	if _, _, err := w.Recv(t.Context(), from, 7, p); err != nil || p[0] != byte(from) || p[1] != 9 {
		t.Errorf("rank %d: %v, %v", rank, p, err)
	}
}

// checkTold checks the launcher's and the ranks' lines about strangers.
func checkTold(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{"the launcher: refused who", "level=WARN", "127.0.0.1", "a wrong proof",
		"something else than gorovod"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in what was told:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines about strangers", n)
	}
	if strings.Contains(text, string(key)) {
		t.Error("the secret is in the log")
	}
}

// listeningPorts are the TCP ports on which this process listens.
func listeningPorts(t *testing.T) map[int]bool {
	t.Helper()
	mine := map[string]bool{}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("which ports there are cannot be found out: %v", err)
	}
	for _, f := range files {
		to, _ := os.Readlink("/proc/self/fd/" + f.Name())
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	ports := map[int]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile("/proc/self/net/" + table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && mine[f[9]] {
				_, hex, _ := strings.Cut(f[1], ":")
				port, _ := strconv.ParseUint(hex, 16, 16)
				ports[int(port)] = true
			}
		}
	}
	return ports
}

// knock connects, if possible, and calls f with the connection.
func knock(addr string, f func(net.Conn)) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	f(c)
}

// scan looks whether the port is open.
func scan(_ *rand.Rand, addr string) {
	for range 50 {
		knock(addr, func(net.Conn) {})
	}
}

// babble sends anything, and sometimes begins like the handshake.
func babble(r *rand.Rand, addr string) {
	for i := range 50 {
		knock(addr, func(c net.Conn) {
			junk := make([]byte, 1+r.IntN(8<<10))
			for i := range junk {
				junk[i] = byte(r.Uint32())
			}
			if i%2 == 0 {
				copy(junk, "gorovod\x01")
			}
			c.Write(junk)
			c.Read(junk)
		})
	}
	knock(addr, func(c net.Conn) {
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: curl/8\r\n\r\n")
		c.Read(make([]byte, 1))
	})
}

// hang sends nothing, for as long as it may.
func hang(_ *rand.Rand, addr string) {
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { knock(addr, func(c net.Conn) { c.Read(make([]byte, 1)) }) })
	}
	all.Wait()
}

// drip sends the beginning of the handshake slowly.
func drip(_ *rand.Rand, addr string) {
	knock(addr, func(c net.Conn) {
		for _, b := range append([]byte("gorovod\x01"), make([]byte, 200)...) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// impersonate uses the handshake of another job.
func impersonate(r *rand.Rand, addr string) {
	for range 50 {
		knock(addr, func(c net.Conn) {
			auth.Initiate(c, []byte("another job's secret"), []byte(
				fmt.Sprint(r.Uint32())))
		})
	}
}

// overrun opens very many connections, a few hundred at a time.
func overrun(addr string, n int) {
	const together = 300
	open := make([]net.Conn, 0, together)
	for range n {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			open = append(open, c)
		}
		if len(open) == together {
			for _, c := range open {
				c.Close()
			}
			open = open[:0]
		}
	}
	for _, c := range open {
		c.Close()
	}
}
