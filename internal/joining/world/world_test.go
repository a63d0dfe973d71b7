package world

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv(mpiRoleVariable) != "" { // the threads of MPI are no leak
		os.Exit(m.Run())
	}
	leak.Main(m)
}

const limit = 30 * time.Second

var key = []byte("0123456789abcdef0123456789abcdef")

// launcher is the rendezvous of a job whose ranks are goroutines of this process.
type launcher struct {
	*rendezvous.Server
	addr string
}

func newLauncher(t testing.TB, size int) *launcher {
	t.Helper()
	return newLauncherAt(t, "127.0.0.1", size)
}

func newLauncherAt(t testing.TB, address string, size int) *launcher {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := rendezvous.NewServer(key, size)
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }()
	t.Cleanup(func() { s.Close(); <-done })
	return &launcher{s, l.Addr().String()}
}

// config is the configuration of a rank. A transport that begins with "on " names the rank's host by the letter at its
// place: with "on aab" ranks 0 and 1 are on one host, and rank 2 on another. "tls" is tcp under TLS, and "tls on aab"
// the same as "on aab" with TLS between the hosts.
func (l *launcher) config(rank, size int, transport string) *config.Config {
	host := "testhost"
	transport, tls := strings.CutPrefix(transport, "tls")
	if tls && transport == "" {
		transport = "tcp"
	}
	if letters, ok := strings.CutPrefix(strings.TrimSpace(transport), "on "); ok {
		host, transport = letters[rank:rank+1], "auto"
	}
	return &config.Config{Told: config.Told{Rank: rank, Size: size, LocalRank: rank, LocalSize: size, CrossSize: 1,
		Hostname: host, Rendezvous: []string{l.addr}, Key: key}, TLS: tls,
		FusionThreshold: 1 << 20, CacheCapacity: 16, EarlyBytes: 4096, MeasureLinks: true,
		Timeout: 10 * time.Second, Transport: transport}
}

func each(n int, f func(rank int)) {
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { f(r) })
	}
	wg.Wait()
}

// join is Join with the start that horovodrun would have given the rank of c.
func join(ctx context.Context, c *config.Config, generation uint64, o Options) (*World, error) {
	s := bootstrap.Launched(c, generation, time.Time{})
	return Join(ctx, s, c, o)
}

func quiet() Options { return Options{Log: slog.New(slog.DiscardHandler)} }

// add sums one float over the ranks.
func add(w *World, name string, v float32) (float32, *engine.Error) {
	data := binary.NativeEndian.AppendUint32(nil, math.Float32bits(v))
	e, err := w.Engine.Enqueue(&engine.Op{Type: operation.Allreduce, DType: tensor.Float32, ReduceOp: tensor.Sum,
		Name: name, Shape: tensor.Shape{1}, Prescale: 1, Postscale: 1, In: data, Out: data})
	if err != nil {
		return 0, err
	}
	defer e.Release()
	if !e.Wait(limit) {
		return 0, &engine.Error{Code: engine.UnknownError, Reason: "time-out of the test"}
	}
	return math.Float32frombits(binary.NativeEndian.Uint32(data)), e.Err()
}

// The ranks join, use and leave a world several times, over each transport.
func TestGenerations(t *testing.T) {
	for _, transport := range []string{"auto", "tcp", "tls", "on aab"} {
		t.Run(transport, func(t *testing.T) {
			l := newLauncher(t, 3)
			for generation := uint64(1); generation <= 3; generation++ {
				each(3, func(r int) {
					w, err := join(context.Background(), l.config(r, 3, transport), generation, quiet())
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					if want := map[string]string{"auto": "shm", "tcp": "tcp", "tls": "tcp",
						"on aab": "shm+tcp"}[transport]; w.Engine.Network() != want {
						t.Errorf("network %s, want %s", w.Engine.Network(), want)
					}
					for i := range 5 {
						if v, err := add(w, "x", float32(r+i)); err != nil || v != float32(3+3*i) {
							t.Errorf("rank %d: %v %v", r, v, err)
						}
					}
					w.Leave(limit)
				})
			}
		})
	}
}

func TestAlone(t *testing.T) {
	c, err := config.Load(func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	w, err := join(context.Background(), c, 1, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if v, err := add(w, "x", 5); err != nil || v != 5 {
		t.Errorf("%v %v", v, err)
	}
	w.Leave(limit)
}

func TestMissingRankIsNamed(t *testing.T) {
	l := newLauncher(t, 3)
	each(2, func(r int) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := join(ctx, l.config(r, 3, "auto"), 1, quiet())
		if err == nil || !strings.Contains(err.Error(), "rank 2") {
			t.Errorf("rank %d: %v", r, err)
		}
	})
}

func TestRankZerosKnobsAreAdopted(t *testing.T) {
	l := newLauncher(t, 2)
	each(2, func(r int) {
		c := l.config(r, 2, "auto")
		c.TCPStreams = 2
		var log bytes.Buffer
		if r == 1 {
			c.FusionThreshold, c.Transport, c.TCPStreams = 7, "tcp", 3
		}
		w, err := join(context.Background(), c, 1, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Error(err)
			return
		}
		if c.FusionThreshold != 1<<20 || w.Engine.Network() != "shm" || c.TCPStreams != 2 {
			t.Errorf("rank %d: threshold %d over %s, %d streams", r, c.FusionThreshold, w.Engine.Network(),
				c.TCPStreams)
		}
		if told := strings.Contains(log.String(), "HOROVOD_FUSION_THRESHOLD") && strings.Contains(log.String(),
			"GOROVOD_TRANSPORT") &&
			strings.Contains(log.String(), "GOROVOD_TCP_STREAMS"); told != (r == 1) {
			t.Errorf("rank %d was told: %s", r, log.String())
		}
		w.Leave(limit)
	})
}

// The launcher's news of a death end pending operations, with its text.
func TestDeathEndsThePending(t *testing.T) {
	for _, transport := range []string{"shm", "tcp", "on aba"} {
		t.Run(transport, func(t *testing.T) {
			l := newLauncher(t, 3)
			var ready, told sync.WaitGroup
			ready.Add(3)
			told.Add(2) // the ranks that hear of it
			each(3, func(r int) {
				w, err := join(context.Background(), l.config(r, 3, transport), 1, quiet())
				ready.Done()
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				} else {
					defer w.Leave(limit)
				}
				if r != 2 {
					defer told.Done()
				}
				if err != nil {
					return
				}
				if r == 2 { // rank 2 is said to have died
					ready.Wait()
					l.Died(rendezvous.Death{Rank: 2, Host: "testhost", PID: os.Getpid(), Signal: 9})
					told.Wait() // so that they do not hear of its leaving instead
					return
				}
				want := fmt.Sprintf("rank 2 on host testhost (pid %d) was killed by signal 9 (SIGKILL)", os.Getpid())
				for _, name := range []string{"pending", "later"} {
					if _, err := add(w, name, 1); err == nil || err.Code != engine.UnknownError ||
						!strings.Contains(err.Reason, want) {
						t.Errorf("rank %d %s: %v", r, name, err)
					}
				}
			})
		})
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	l := newLauncher(t, 2)
	c := l.config(0, 2, "auto")
	c.Told.Key = []byte("another")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := join(ctx, c, 1, quiet()); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("error %v", err)
	}
}
