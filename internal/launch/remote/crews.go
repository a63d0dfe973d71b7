package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

const (
	// dialsAtATime is how many hosts the launcher connects to at a time. Each connection is an ssh, which stays as long
	// as the job, and mostly waits for the other end.
	dialsAtATime = 512
	// moreFailures is how long, after a host has failed, the launcher waits for other failures.
	moreFailures = time.Second
)

// Crews makes the crews of all hosts, by name; the names of this host share one crew. On an error, which lists every
// host that has failed, no crew is left.
func Crews(ctx context.Context, hosts []string, local func(host string) bool, c *Calls, job wire.Assignment,
	slots map[string]int) (map[string]spawn.Crew, error) {
	crews := map[string]spawn.Crew{}
	var near, far []string
	for _, h := range hosts {
		if local(h) {
			near = append(near, h)
		} else {
			far = append(far, h)
		}
	}
	var here *spawn.LocalCrew
	for _, h := range near {
		if here == nil {
			var err error
			if here, err = spawn.NewLocalCrew(h, job.Secret, len(far) > 0); err != nil {
				return nil, err
			}
			if err := here.Feed(job.Input); err != nil {
				here.Close()
				return nil, err
			}
		}
		crews[h] = here
	}
	if len(far) == 0 {
		return crews, nil
	}
	err := dialAll(ctx, far, c, job, slots, crews)
	if err != nil {
		Dismiss(crews)
		return nil, err
	}
	return crews, nil
}

// dialAll adds the crews of hosts to crews.
func dialAll(ctx context.Context, hosts []string, calls *Calls, job wire.Assignment, slots map[string]int,
	crews map[string]spawn.Crew) error {
	ctx, cancel := context.WithTimeoutCause(ctx, calls.Shell.Timeout, context.DeadlineExceeded)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var (
		mu       sync.Mutex
		failures []error
		pending  []string
		wg       sync.WaitGroup
		room     = make(chan struct{}, dialsAtATime)
	)
	for _, h := range hosts {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			mine := job
			mine.Host, mine.Slots = h, slots[h]
			c, err := calls.Connect(ctx, mine)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				crews[h] = c
				return
			}
			if context.Cause(ctx) == errOthersFailed {
				pending = append(pending, h)
				return
			}
			failures = append(failures, err)
			if len(failures) == 1 {
				time.AfterFunc(moreFailures, func() { giveUp(errOthersFailed) })
			}
		})
	}
	wg.Wait()
	if len(failures) == 0 {
		return nil
	}
	if errors.Is(context.Cause(ctx), ErrInterrupted) {
		return ErrInterrupted
	}
	slices.SortFunc(failures, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	var b strings.Builder
	what := "could not connect to some hosts via ssh"
	if calls.Shell.Open != nil {
		what = "some nodes could not take part"
	}
	fmt.Fprintf(&b, "%s: %d of %d", what, len(failures), len(hosts))
	for i, f := range failures {
		if i == 16 {
			fmt.Fprintf(&b, "\n  and %d more", len(failures)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %v", f)
	}
	if len(pending) > 0 {
		slices.Sort(pending)
		fmt.Fprintf(&b, "\n  not connected yet: %s", strings.Join(pending, " "))
	}
	return errors.New(b.String())
}

// The causes that cancel the connecting.
var (
	errOthersFailed = errors.New("other hosts have failed")
	ErrInterrupted  = errors.New("interrupted")
)

// Dismiss closes crews, all at the same time.
func Dismiss(crews map[string]spawn.Crew) {
	var wg sync.WaitGroup
	seen := map[spawn.Crew]bool{}
	for _, c := range crews {
		if !seen[c] {
			seen[c] = true
			wg.Go(c.Close)
		}
	}
	wg.Wait()
}

// WorkingDirectory is where commands run on other hosts: as the user named it, with its symbolic links.
func WorkingDirectory() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}
