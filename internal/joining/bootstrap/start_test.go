package bootstrap

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/joining/roster"
)

// began returns the Start with which a process with these variables joins.
func began(t *testing.T, variables string) (s Start) {
	t.Helper()
	values := make(map[string]string)
	for _, v := range strings.Fields(variables) {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	c, err := config.Load(lookup)
	if err != nil {
		t.Fatalf("%s: %v", variables, err)
	}
	p := new(Process)
	o := Options{Generation: 3, Deadline: time.Now().Add(time.Minute), Lookup: lookup,
		Log: func(roster.Place) *slog.Logger { return slog.New(slog.DiscardHandler) }}
	err = p.Begin(t.Context(), c, o, func(_ context.Context, found Start) error {
		s = found
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", variables, err)
	}
	if p.server != nil {
		p.server.Close()
	}
	if s.Generation != o.Generation || !s.Deadline.Equal(o.Deadline) {
		t.Errorf("%s: %+v", variables, s)
	}
	return s
}

// A Start claims a place only if Horovod's own variables have set it.
func TestClaims(t *testing.T) {
	told := " HOROVOD_GLOO_RENDEZVOUS_ADDR=127.0.0.1 HOROVOD_GLOO_RENDEZVOUS_PORT=9 HOROVOD_SECRET_KEY=" +
		strings.Repeat("00", 16)
	for variables, want := range map[string]roster.Claim{
		"HOROVOD_RANK=1 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_CROSS_RANK=0 " +
			"HOROVOD_CROSS_SIZE=2" + told: {LocalRank: 1, LocalSize: 2, CrossSize: 2},
		"HOROVOD_RANK=1 HOROVOD_SIZE=4 HOROVOD_LOCAL_SIZE=2" +
			told: {LocalSize: 2},
		"HOROVOD_RANK=1 HOROVOD_SIZE=4" +
			told: {},
		"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 " +
			"PMIX_NAMESPACE=7 " +
			"HOROVOD_LOCAL_SIZE=3 GOROVOD_RENDEZVOUS_DIR=" + t.TempDir(): {},
	} {
		if got := began(t, variables).Claim; got != want {
			t.Errorf("%s: %+v, want %+v", variables, got, want)
		}
	}
}

// A Start has the same parts, whichever program has started the process.
func TestStarts(t *testing.T) {
	secret := strings.Repeat("5a", 32)
	alone := began(t, "HOROVOD_HOSTNAME=h")
	if want := (roster.Place{Size: 1, LocalSize: 1, CrossSize: 1, Host: "h"}); alone.Place != want ||
		alone.Peers != nil || alone.Secret != nil {
		t.Errorf("alone: %+v", alone)
	}
	ours := began(t, "HOROVOD_RANK=1 HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_HOSTNAME=h "+
		"GOROVOD_RENDEZVOUS_ADDRS=127.0.0.1:9 HOROVOD_SECRET_KEY="+secret)
	if want := (roster.Place{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, CrossSize: 1,
		Host: "h"}); ours.Place != want ||
		!slices.Equal(ours.Peers, []string{"127.0.0.1:9"}) || len(ours.Secret) != 32 {
		t.Errorf("horovodrun: %+v", ours)
	}
	theirs := began(t, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=7 HOROVOD_HOSTNAME=h "+
		"GOROVOD_RENDEZVOUS_DIR="+t.TempDir())
	if want := (roster.Place{Size: 3, Host: "h"}); theirs.Place != want || len(theirs.Peers) == 0 ||
		len(theirs.Secret) != 32 {
		t.Errorf("mpirun, which does not tell how the ranks lie on the hosts: %+v", theirs)
	}
}
