//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/test/leak"
)

// patience is the ranks' time-out in tests in which nobody may wait that long. soon is far more than telling takes.
const (
	patience = time.Minute
	soon     = 20 * time.Second
)

// openFailing opens all ranks that have a config at once and returns their errors, none of which may be a time-out.
func openFailing(t *testing.T, configs ...Config) []error {
	t.Helper()
	began := time.Now()
	errs := make([]error, len(configs))
	var wg sync.WaitGroup
	for i, c := range configs {
		wg.Go(func() {
			n, err := Open(t.Context(), c)
			if err == nil {
				n.Close()
				err = errors.New("attached")
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if d := time.Since(began); d > soon {
		t.Errorf("it took %v", d)
	}
	return errs
}

// all checks that the errors are the same, of the rank, with the text.
func all(t *testing.T, errs []error, rank int, text string) {
	t.Helper()
	for i, err := range errs {
		if err.Error() != errs[0].Error() || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: ", rank)) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("error %d is %q, want one of rank %d with %q", i, err, rank, text)
		}
	}
}

func patient(t *testing.T, size int) []Config {
	generation.Add(1)
	configs := make([]Config, size)
	for r := range configs {
		configs[r] = testConfig(t, r, size)
		configs[r].Timeout = patience
	}
	return configs
}

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

// starve limits this process to room more bytes of address space.
func starve(room int) error {
	p, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	pages, err := strconv.Atoi(strings.Fields(string(p))[0])
	if err != nil {
		return err
	}
	limit := uint64(pages*os.Getpagesize() + room)
	return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit})
}

// prove does what a guest does, up to the proof.
func prove(ctx context.Context, c Config, h hello) (*net.UnixConn, error) {
	conn, err := (&Network{cfg: c}).dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := auth.Initiate(conn, proofKey(c), h.encode()); err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(soon))
	return conn, nil
}

func TestOwnersFailureIsToldToAll(t *testing.T) {
	limitFiles(t)
	all(t, openFailing(t, patient(t, 4)...), 0, "file too large")
	leak.Check(t)
}

// Rank 0 stays until it has told the last rank.
func TestOwnersFailureIsToldToTheLate(t *testing.T) {
	limitFiles(t)
	configs := patient(t, 3)
	owner := make(chan []error)
	go func() { owner <- openFailing(t, configs[0]) }()
	errs := openFailing(t, configs[1])
	errs = append(errs, openFailing(t, configs[2])...)
	all(t, append(errs, <-owner...), 0, "file too large")
}

func TestGuestsFailureIsToldToAll(t *testing.T) {
	configs := patient(t, 4)
	configs[2].Cards *= 2 // it wants a larger segment
	all(t, openFailing(t, configs...), 2, "the segment is for 4 ranks and 64 cards, want 4 and 128")
	leak.Check(t)
}

func TestGuestWithoutAddressSpace(t *testing.T) {
	configs := patient(t, 3)
	for r := range configs {
		configs[r].Job = strconv.Itoa(os.Getpid())
	}
	p := start(t, "starve", configs[1])
	errs := openFailing(t, configs[0], configs[2])
	all(t, errs, 1, "cannot allocate memory")
	p.expect(t, errs[0].Error())
}

func TestGuestDiesWhileRanksAttach(t *testing.T) {
	configs := patient(t, 3)
	for r := range configs {
		configs[r].Job = strconv.Itoa(os.Getpid())
	}
	p := start(t, "hang", configs[2])
	done := make(chan []error)
	go func() { done <- openFailing(t, configs[:2]...) }()
	p.expect(t, "granted")
	p.Process.Kill()
	all(t, <-done, 2, fmt.Sprintf("process %d has gone", p.Process.Pid))
}

func TestOwnerDiesWhileRanksAttach(t *testing.T) {
	c := patient(t, 2)[1]
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address(c), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		conn, err := ln.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := auth.Accept(conn, proofKey(c)); err != nil {
			t.Error(err)
		}
	}()
	all(t, openFailing(t, c), 1, "rank 0 has gone")
}

// A process that knows the secret but does not fit makes the attachment fail for all.
func TestMisfitsAreToldToAll(t *testing.T) {
	pid := os.Getpid()
	for _, m := range []struct {
		hello
		why string
	}{
		{hello{0, 2, pid}, "it says that it is number 0 of the 2 ranks"},
		{hello{2, 2, pid}, "it says that it is number 2 of the 2 ranks"},
		{hello{1, 3, pid}, "it counts 3 ranks on this host, rank 0 counts 2"},
		{hello{1, 2, 1}, "it lives in another pid namespace"},
	} {
		configs := patient(t, 2)
		owner := make(chan []error)
		go func() { owner <- openFailing(t, configs[0]) }()
		conn, err := prove(t.Context(), configs[1], m.hello)
		if err != nil {
			t.Fatal(err)
		}
		misfit := lastWord(conn)
		conn.Close()
		if told := (*failure)(nil); !errors.As(misfit, &told) || !strings.Contains(told.text, m.why) {
			t.Errorf("%+v was told: %v", m.hello, misfit)
		}
		if m.rank != 1 { // the true rank 1 is still missing
			all(t, openFailing(t, configs[1]), 0, m.why)
		}
		all(t, <-owner, 0, m.why)
	}
	leak.Check(t)
}

func TestTwoOfOneRank(t *testing.T) {
	configs := patient(t, 3)
	owner := make(chan []error)
	go func() { owner <- openFailing(t, configs[0]) }()
	first, err := prove(t.Context(), configs[1], hello{1, 3, os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if fds, err := receiveFDs(first, 1); err != nil {
		t.Fatal(err)
	} else {
		closeAll(fds)
	}
	errs := openFailing(t, configs[1])
	errs = append(errs, openFailing(t, configs[2])...)
	all(t, append(errs, <-owner...), 0, "rank 1 has come already")
	if told := (*failure)(nil); !errors.As(lastWord(first), &told) {
		t.Error("the first was not told")
	}
}

// A rank whose time is up names the ranks that it has waited for, and all ranks return that error.
func TestGuestThatGivesUpNamesTheMissing(t *testing.T) {
	configs := patient(t, 4)
	configs[2].Timeout = 300 * time.Millisecond
	owner := make(chan []error)
	go func() { owner <- openFailing(t, configs[0]) }()
	errs := openFailing(t, configs[2])
	if !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("the error is no time-out: %v", errs[0])
	}
	errs = append(errs, openFailing(t, configs[1])...)
	errs = append(errs, openFailing(t, configs[3])...)
	all(t, append(errs, <-owner...), 2, "ranks 1, 3 have not attached")
}

func TestLongFailureIsCut(t *testing.T) {
	f := asFailure(3, errors.New(strings.Repeat("é", maxFailure)))
	got, err := readFailure(strings.NewReader(string(f.message(statusFailed)[1:])))
	if err != nil || got.rank != 3 || got.text != f.text || got.text != strings.Repeat("é", maxFailure/2) {
		t.Errorf("got %d bytes of rank %d, %v", len(got.text), got.rank, err)
	}
}
