// Package discovery runs the user's script that lists the hosts of an elastic job, and reads what the script prints. It
// must not know what the job does with the hosts.
package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/base/regular"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

const (
	// Interval is the time between two discoveries of hosts, as in Horovod.
	Interval = time.Second
	// Limit is how long a discovery script may take; --start-timeout sets the limit for the first run.
	Limit = 60 * time.Second
	// Slow is how long the first run may take before the user is told.
	Slow = 5 * time.Second
	// maxOutput is the most output of a discovery script.
	maxOutput = 1 << 20
)

// Script runs a script that lists hosts. One goroutine at a time uses it.
type Script struct {
	Command string
	Slots   int                              // for a host whose line has no number
	Say     func(format string, args ...any) // tells the user of lines that are left out

	last  []membership.Host // the last answer; nil before the first
	wrong string            // what was wrong with some lines of the last answer
}

// Hosts runs the script through a shell, as Horovod does, and parses its lines.
func (d *Script) Hosts(ctx context.Context) ([]membership.Host, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, Limit, fmt.Errorf("it has not ended within %v", Limit))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", d.Command)
	cmd.Env = placement.Exportable(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's Ctrl-C goes only to the launcher
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well; a process that it left behind holds its output open
		cmd.Cancel()
		err = nil
	}
	if err != nil {
		advice := ""
		switch {
		case out.over || errs.over:
			err = fmt.Errorf("it has printed more than %d KiB", maxOutput>>10)
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = context.Cause(ctx)
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			advice = d.advice(err)
		}
		return nil, fmt.Errorf("%s: %w%s%s", d.Command, err, after(lastOf(errs.kept.String())), advice)
	}
	return d.read(out.kept.String())
}

// read returns the hosts of an answer. If some lines of it make no sense, the others count, and the user hears of it
// once. The first answer must be whole, because a user is there to mend the script; and so must be one without any good
// line, such as an error message.
func (d *Script) read(text string) ([]membership.Host, error) {
	hosts, bad, err := d.Parse(text)
	if err != nil && (d.last == nil || len(hosts) == 0) {
		return nil, err
	}
	wrong := ""
	if err != nil {
		hosts = d.keep(hosts, bad)
		wrong = err.Error()
	}
	if wrong != "" && wrong != d.wrong {
		d.Say("discover hosts: %s; its other lines count", wrong)
	}
	d.wrong, d.last = wrong, append([]membership.Host{}, hosts...)
	return hosts, nil
}

// keep adds the hosts of the last answer about which only bad lines say something: a mistake drains no host.
func (d *Script) keep(hosts []membership.Host, bad []string) []membership.Host {
	for _, h := range d.last {
		named := func(o membership.Host) bool { return o.Name == h.Name }
		if !slices.ContainsFunc(hosts, named) && slices.ContainsFunc(bad, func(line string) bool {
			return strings.Contains(line, h.Name)
		}) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// advice says what the user can do if the shell has not found the script, or may not run it.
func (d *Script) advice(err error) string {
	var exit *exec.ExitError
	name, rest, _ := strings.Cut(strings.TrimSpace(d.Command), " ")
	if !errors.As(err, &exit) || !regular.Is(name) {
		return ""
	}
	switch exit.ExitCode() {
	case spawn.NotFoundCode:
		if strings.Contains(name, "/") {
			return ""
		}
		return "\n  a shell does not look into this directory, where " + name +
			" lies: write --host-discovery-script " + commandline.Join([]string{strings.TrimSpace("./" + name + " " +
			rest)})
	case spawn.NotExecutableCode:
		return "\n  make it executable: chmod +x " + commandline.Join([]string{name})
	}
	return ""
}

// lastOf returns the end of a script's output, short enough for a message.
func lastOf(text string) string {
	const most = 4 << 10
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

// after formats the output of a failed script for the lines below the error.
func after(text string) string {
	if text = strings.TrimSpace(text); text != "" {
		return ":\n  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	return ""
}

// Parse parses lines like "host" or "host:slots". If a host has several lines, the last one counts. A host with 0 slots
// is left out: it has none now. bad are the lines that make no sense; err says so of the first.
func (d *Script) Parse(text string) (hosts []membership.Host, bad []string, err error) {
	index := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		h, wrong := d.parseLine(line)
		if wrong != nil {
			bad = append(bad, line)
			if err == nil {
				err = wrong
			}
			continue
		}
		i, found := index[h.Name]
		if !found {
			i = len(hosts)
			index[h.Name] = i
			hosts = append(hosts, membership.Host{Name: h.Name})
		}
		hosts[i].Slots = h.Slots
	}
	return slices.DeleteFunc(hosts, func(h membership.Host) bool { return h.Slots == 0 }), bad, err
}

// parseLine parses a line of an answer.
func (d *Script) parseLine(line string) (placement.Host, error) {
	entry := line
	if !placement.HostEntry().MatchString(entry) {
		entry = fmt.Sprintf("%s:%d", line, d.Slots)
	}
	if !placement.HostEntry().MatchString(entry) {
		return placement.Host{}, fmt.Errorf("%s printed %q: a line must look like host or host:slots", d.Command,
			printable.Short(line))
	}
	colon := strings.LastIndexByte(entry, ':')
	h, err := placement.NewHost(entry[:colon], entry[colon+1:])
	if err != nil {
		return placement.Host{}, fmt.Errorf("%s printed %q: %w", d.Command, printable.Short(line), err)
	}
	return h, nil
}

// limited keeps the first maxOutput bytes that are written to it.
type limited struct {
	kept bytes.Buffer
	over bool // there was more than maxOutput
}

func (l *limited) Write(p []byte) (int, error) {
	if l.kept.Len()+len(p) > maxOutput {
		l.over = true
		return 0, fmt.Errorf("more than %d bytes of output", maxOutput)
	}
	return l.kept.Write(p)
}
