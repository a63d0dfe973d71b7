package launch

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// Ranks meet at gorovod rendezvous, with the environment that it prints, until it gets a signal.
func TestRanksMeetByHand(t *testing.T) {
	for _, secret := range []string{"", hex.EncodeToString([]byte("a secret of the user's"))} {
		printed, stdout := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := serveRendezvous("gorovod rendezvous", []string{"-n", "2", "--listen", "127.0.0.1:0"},
				secret, stdout)
			stdout.CloseWithError(err)
			done <- err
		}()
		env := map[string]string{}
		for lines := bufio.NewScanner(printed); len(env) < 4; {
			if !lines.Scan() {
				t.Fatalf("it has printed %v: %v", env, lines.Err())
			}
			name, value, _ := strings.Cut(lines.Text(), "=")
			env[name] = value
		}
		if secret != "" && env[spawn.SecretVariable] != secret || len(env[spawn.SecretVariable]) < 32 {
			t.Errorf("the secret is %q", env[spawn.SecretVariable])
		}
		var ranks sync.WaitGroup
		for _, rank := range []string{"0", "1"} {
			ranks.Go(func() { meet(t, rank, env) })
		}
		ranks.Wait()
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// meet is a rank that shares its number with the others.
func meet(t *testing.T, rank string, env map[string]string) {
	c, err := config.Load(func(name string) (string, bool) {
		if name == "HOROVOD_RANK" {
			return rank, true
		}
		v, ok := env[name]
		return v, ok
	})
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := rendezvous.Join(ctx, c.Told.Rendezvous, c.Told.Key, rendezvous.Options{Rank: c.Told.Rank,
		Size: c.Told.Size, Generation: 1})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	if all, err := s.Exchange(ctx, "number", []byte(rank)); err != nil || len(all) != 2 ||
		string(all[0])+string(all[1]) != "01" {
		t.Errorf("rank %s: %q, %v", rank, all, err)
	}
}

func TestRendezvousRefusesWhatMakesNoSense(t *testing.T) {
	for _, c := range []struct{ args, secret, want string }{
		{"", "", "--num-proc"},
		{"-n 0", "", "a number from 1"},
		{"-n 2 --listen :80", "", "HOST:PORT"},
		{"-n 2", "zz", "HOROVOD_SECRET_KEY: it is not hexadecimal"},
		{"-n 2", "c0ffee", "HOROVOD_SECRET_KEY: it has fewer than 32 hexadecimal digits"},
	} {
		code, err := serveRendezvous("gorovod rendezvous", strings.Fields(c.args), c.secret, io.Discard)
		if code != ending.UsageCode || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %d, %v", c.args, code, err)
		}
		if c.secret != "" && strings.Contains(err.Error(), c.secret) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}
