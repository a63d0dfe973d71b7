package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/launch/wire"
)

// An sshd that several hosts share, such as a jump host's, turns connections away while it admits too many others
// (MaxStartups). Such a connection is tried again after pauses, until crowdPatience after its first attempt and after
// the last host that was admitted.
const (
	crowdPatience   = 3 * time.Second
	firstCrowdPause = 100 * time.Millisecond
	lastCrowdPause  = time.Second
)

// Calls are one job's connections to hosts, most of them made at the same time.
type Calls struct {
	Shell  *Shell
	Made   atomic.Int64              // how many hosts were let in
	latest atomic.Pointer[time.Time] // when the last host was let in; nil before
}

// Connect makes the crew of job.Host. It blocks until its agent is ready, or ctx ends. An error of the host is a
// *HostError.
func (c *Calls) Connect(ctx context.Context, job wire.Assignment) (*Crew, error) {
	began := time.Now()
	for pause := firstCrowdPause; ; pause = min(2*pause, lastCrowdPause) {
		l, err := c.Shell.line(job.Host)
		if err != nil {
			return nil, err
		}
		crew, err := dial(ctx, l, job)
		if err == nil {
			now := time.Now()
			c.latest.Store(&now)
			c.Made.Add(1)
			return crew, nil
		}
		var h *HostError
		since := began
		if latest := c.latest.Load(); latest != nil && latest.After(since) {
			since = *latest
		}
		if !errors.As(err, &h) || !h.TurnedAway || time.Since(since) > crowdPatience {
			return nil, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // hosts turned away together must not retry together
		case <-ctx.Done():
			return nil, err
		}
	}
}

// line opens a line to host. An error is a *HostError.
func (r *Shell) line(host string) (*Line, error) {
	if r.Open != nil {
		return r.Open(host)
	}
	cmd, err := r.command(host)
	if err != nil {
		return nil, &HostError{Host: host, What: err.Error()}
	}
	l, err := openLine(cmd)
	if err != nil {
		return nil, &HostError{Host: host, What: fmt.Sprintf("cannot start %s: %v", cmd.Args[0], err),
			Advice: "install an ssh client, or name one in GOROVOD_SSH"}
	}
	return l, nil
}

// turnedAway reports whether ssh's message means that an sshd has hung up before authentication.
func turnedAway(code int, text string) bool {
	if code != sshFailed || strings.Contains(text, "Host key verification failed") { // a jump host's key
		return false
	}
	for _, says := range []string{"kex_exchange_identification: ", "ssh_exchange_identification: ",
		"Exceeded MaxStartups", "Not allowed at this time"} {
		if strings.Contains(text, says) {
			return true
		}
	}
	return false
}
