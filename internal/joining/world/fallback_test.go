//go:build linux

package world

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// A rank that waits for another's failure until a time-out would exceed soon; even a fraction of patience is far beyond
// soon.
const (
	patience = 90 * time.Second
	soon     = 20 * time.Second
)

// limitFiles makes it impossible to size a segment until the test ends.
func limitFiles(t *testing.T) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	t.Cleanup(func() {
		unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
		signal.Reset(unix.SIGXFSZ)
	})
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 8 << 20, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
}

// overTCP joins as the rank of c, checks that the world uses TCP and works, and returns the log.
func overTCP(c *config.Config) (logged string, err error) {
	var log bytes.Buffer
	began := time.Now()
	w, err := join(context.Background(), c, 1, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		return log.String(), err
	}
	defer w.Leave(limit)
	if d := time.Since(began); d > soon {
		return log.String(), fmt.Errorf("it took %v to join", d)
	}
	if w.Engine.Network() != "tcp" {
		return log.String(), fmt.Errorf("the network is %s", w.Engine.Network())
	}
	want := float32(c.Told.Size * (c.Told.Size - 1) / 2)
	if v, err := add(w, "x", float32(c.Told.Rank)); err != nil || v != want {
		return log.String(), fmt.Errorf("the sum is %v, want %v: %v", v, want, err)
	}
	return log.String(), nil
}

// warned checks that rank 0, and only it, has named the cause.
func warned(t *testing.T, rank int, logged, cause string) {
	t.Helper()
	if rank != 0 {
		if strings.Contains(logged, "shared memory") {
			t.Errorf("rank %d logged %q", rank, logged)
		}
		return
	}
	if !strings.Contains(logged, "TCP is used instead") || strings.Count(logged, cause) != 1 {
		t.Errorf("rank 0 logged %q, want %q once", logged, cause)
	}
}

func TestTCPWhereTheSegmentCannotBeMade(t *testing.T) {
	limitFiles(t)
	l := newLauncher(t, 3)
	each(3, func(r int) {
		c := l.config(r, 3, "auto")
		c.Timeout = patience
		logged, err := overTCP(c)
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		warned(t, r, logged, "rank 0: size the segment to")
	})
}

func TestShmIsInsistedOn(t *testing.T) {
	limitFiles(t)
	l := newLauncher(t, 3)
	began := time.Now()
	each(3, func(r int) {
		c := l.config(r, 3, "shm")
		c.Timeout = patience
		_, err := join(context.Background(), c, 1, quiet())
		if err == nil || !strings.Contains(err.Error(), "GOROVOD_TRANSPORT=shm") || strings.Count(err.Error(),
			"rank 0: size the segment to") != 1 {
			t.Errorf("rank %d: %v", r, err)
		}
	})
	if d := time.Since(began); d > soon {
		t.Errorf("it took %v", d)
	}
}

// starvedEnv has the address of a launcher, and makes this test's process its rank 1.
const starvedEnv = "WORLD_TEST_STARVED"

// Rank 1 is a process without address space for the segment.
func TestTCPWhereARankCannotMapTheSegment(t *testing.T) {
	const size = 3
	if addr := os.Getenv(starvedEnv); addr != "" {
		// The segment of three ranks takes 222 MiB. Go's heap may take another arena of 64 MiB, and each new thread a
		// stack of 8 MiB.
		starve(t, 160<<20)
		c := (&launcher{addr: addr}).config(1, size, "auto")
		c.Timeout = patience
		logged, err := overTCP(c)
		if err != nil {
			t.Fatal(err)
		}
		warned(t, 1, logged, "")
		return
	}
	l := newLauncher(t, size)
	each(size, func(r int) {
		if r == 1 {
			cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			// otherwise C's malloc takes 64 MiB for each thread
			cmd.Env = append(os.Environ(), starvedEnv+"="+l.addr, "MALLOC_ARENA_MAX=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("rank 1: %v\n%s", err, out)
				l.Died(rendezvous.Death{Rank: 1, Host: "testhost", ExitCode: 1})
			}
			return
		}
		c := l.config(r, size, "auto")
		c.Timeout = patience
		logged, err := overTCP(c)
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
		warned(t, r, logged, "cannot allocate memory")
	})
}

// starve limits this process to room more bytes of address space.
func starve(t *testing.T, room int) {
	t.Helper()
	p, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(p))[0])
	if err != nil {
		t.Fatal(err)
	}
	limit := uint64(pages*os.Getpagesize() + room)
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
}

// squat takes the name of the socket of the host whose first rank it is given.
func squat(t *testing.T, l *launcher, first int) {
	t.Helper()
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "segment|%q|%d|%d", l.addr, 1, first) // as package shm names it
	squatter, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@gorovod-" + hex.EncodeToString(h.Sum(nil)[:16]),
		Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { squatter.Close() })
}

// If the ranks of one host cannot share memory, each is a host of its own, and the ranks of another host still share.
func TestHostsThatCannotShareFallApart(t *testing.T) {
	l := newLauncher(t, 4)
	squat(t, l, 1)
	each(4, func(r int) {
		c := l.config(r, 4, "on abab")
		c.Timeout = 6 * time.Second
		var log bytes.Buffer
		w, err := join(context.Background(), c, 1,
			Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		defer w.Leave(limit)
		if warned := strings.Contains(log.String(), "TCP is used instead") && strings.Contains(log.String(),
			"ranks=\"[1 3]\""); warned != (r == 1) {
			t.Errorf("rank %d logged %q", r, log.String())
		}
		if !strings.Contains(log.String(), "\"[[0 2] [1] [3]]\"") {
			t.Errorf("rank %d logged other hosts: %s", r, log.String())
		}
		if v, err := add(w, "x", float32(r)); err != nil || v != 6 {
			t.Errorf("rank %d: %v %v", r, v, err)
		}
	})
}

// If nobody can tell the others, because a silent process has the socket's name, there is still time for TCP.
func TestTCPHasTimeLeft(t *testing.T) {
	l := newLauncher(t, 3)
	squat(t, l, 0)
	each(3, func(r int) {
		c := l.config(r, 3, "auto")
		c.Timeout = 6 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
		defer cancel()
		w, err := join(ctx, c, 1, quiet())
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		defer w.Leave(limit)
		if w.Engine.Network() != "tcp" {
			t.Errorf("rank %d: network %s: the squatter has not been met", r, w.Engine.Network())
		}
		if v, err := add(w, "x", 1); err != nil || v != 3 {
			t.Errorf("rank %d: %v %v", r, v, err)
		}
	})
}

// The others do not wait for a rank that dies while they attach.
func TestDeathBeforeTheSegmentIsShared(t *testing.T) {
	l := newLauncher(t, 3)
	began := time.Now()
	each(3, func(r int) {
		c := l.config(r, 3, "auto")
		c.Timeout = patience
		if r == 2 {
			die(t, l, c)
			return
		}
		_, err := join(context.Background(), c, 1, quiet())
		if want := "rank 2 on host testhost (pid 4321) was killed by signal 9"; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v", r, err)
		}
	})
	if d := time.Since(began); d > soon {
		t.Errorf("it took %v", d)
	}
}

// die does all that a rank does up to the choice of the transport, and dies.
func die(t *testing.T, l *launcher, c *config.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := rendezvous.Join(ctx, c.Told.Rendezvous, c.Told.Key, rendezvous.Options{Rank: c.Told.Rank,
		Size: c.Told.Size, Host: c.Told.Hostname, PID: 4321, Generation: 1})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	w := &World{Config: c, start: bootstrap.Launched(c, 1, time.Time{}), session: s, log: quiet().Log}
	w.Place = w.start.Place
	if err := w.introduce(ctx, quiet()); err != nil {
		t.Error(err)
	}
	if err := w.compareSets(ctx, nil); err != nil {
		t.Error(err)
	}
	l.Died(rendezvous.Death{Rank: c.Told.Rank, Host: "testhost", PID: 4321, Signal: 9})
}
