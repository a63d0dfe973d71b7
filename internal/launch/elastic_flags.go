package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/base/regular"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/driver"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

const (
	defaultElasticTimeout = 600 * time.Second
	// discoverEvery is the time between two discoveries of hosts, as in Horovod.
	discoverEvery = time.Second
	// scriptLimit is how long a discovery script may take; --start-timeout sets the limit for the first run.
	scriptLimit = 60 * time.Second
	// slowDiscovery is how long the first run may take before the user is told.
	slowDiscovery = 5 * time.Second
	// maxScriptOutput is the most output of a discovery script.
	maxScriptOutput = 1 << 20
)

// elastic reports whether the job is elastic.
func (f *flags) elastic() bool {
	return f.DiscoveryScript != "" || f.MinNP != nil || f.place != nil && f.place.Elastic
}

// checkElastic checks the options and the variables of elastic jobs.
func (f *flags) checkElastic() error {
	if f.elastic() {
		if err := secondsFrom("HOROVOD_ELASTIC_TIMEOUT", &f.ElasticTimeout); err != nil {
			return err
		}
	}
	if err := f.checkElasticNumbers(); err != nil || !f.elastic() {
		return err
	}
	return config.Check(blacklistVariable, os.Getenv(blacklistVariable))
}

// checkElasticNumbers checks the options of elastic jobs.
func (f *flags) checkElasticNumbers() error {
	if !f.elastic() {
		for _, o := range []struct {
			name  string
			given bool
		}{{"--max-np", f.MaxNP != nil}, {"--slots-per-host", f.SlotsPerHost != nil},
			{"--elastic-timeout", f.ElasticTimeout != nil},
			{"--reset-limit", f.ResetLimit != nil}, {cooldownOption, f.BlacklistCooldown != nil}} {
			if o.given {
				return fmt.Errorf("%s is for elastic jobs: give --min-np, --host-discovery-script or --nnodes "+
					"MIN:MAX, too", o.name)
			}
		}
		return nil
	}
	for _, v := range []struct {
		name  string
		value *int
		least int
	}{{"min-np", f.MinNP, 1}, {"max-np", f.MaxNP, 1}, {"slots-per-host", f.SlotsPerHost, 1},
		{"elastic-timeout", f.ElasticTimeout, 1}, {"reset-limit", f.ResetLimit, 0}} {
		if v.value != nil && (*v.value < v.least || *v.value > placement.MaxSlots) {
			return fmt.Errorf("--%s %d: a number from %d to %d is needed", v.name, *v.value, v.least,
				placement.MaxSlots)
		}
	}
	counted := f.NumProc > 0 // with --nnodes the nodes' slots decide, not -np
	if counted && f.MinNP != nil && *f.MinNP > f.NumProc {
		return fmt.Errorf("--min-np %d is above -np %d", *f.MinNP, f.NumProc)
	}
	if f.MaxNP != nil && f.MinNP != nil && *f.MaxNP < *f.MinNP {
		return fmt.Errorf("--max-np %d is below --min-np %d", *f.MaxNP, *f.MinNP)
	}
	if counted && f.MaxNP != nil && *f.MaxNP < f.NumProc {
		return fmt.Errorf("--max-np %d is below -np %d", *f.MaxNP, f.NumProc)
	}
	if c := f.BlacklistCooldown; c != nil && (len(c) != 2 || c[0] < 1 || c[1] < c[0] || c[1] > 3600) {
		return fmt.Errorf("%s %s: two numbers of seconds are needed, from 1 to 3600, the lesser first", cooldownOption,
			strings.Trim(fmt.Sprint(c), "[]"))
	}
	return nil
}

// blacklistVariable says what a failure costs: "host" excludes the whole host, anything else one slot.
const blacklistVariable = "GOROVOD_ELASTIC_BLACKLIST"

// membership are the rules of an elastic job.
func (f *flags) membership(env []string) membership.Config {
	c := membership.Config{NP: f.NumProc, Min: f.NumProc, ResetLimit: -1, Timeout: defaultElasticTimeout,
		Patience:   patience(environment.Get(env, "GOROVOD_HEARTBEAT_SECONDS")),
		WholeHosts: os.Getenv(blacklistVariable) == "host", Fixed: f.DiscoveryScript == "",
		Resumable: environment.Get(env, "GOROVOD_CHECKPOINT_DIR") != "",
		Random:    rand.Float64}
	for _, o := range []struct {
		value *int
		to    *int
	}{{f.MinNP, &c.Min}, {f.MaxNP, &c.Max}, {f.ResetLimit, &c.ResetLimit}} {
		if o.value != nil {
			*o.to = *o.value
		}
	}
	if f.ElasticTimeout != nil {
		c.Timeout = time.Duration(*f.ElasticTimeout) * time.Second
	}
	c.Cooldown = f.cooldown()
	return c
}

// cooldown is how long failed slots and hosts stay excluded.
func (f *flags) cooldown() (c membership.Cooldown) {
	if r := f.BlacklistCooldown; r != nil {
		c.Min, c.Max = time.Duration(r[0])*time.Second, time.Duration(r[1])*time.Second
	}
	return c
}

// firstDiscovery is the limit of the first discovery, for which the job's start waits.
func (f *flags) firstDiscovery() driver.Limit {
	limit := driver.Limit{Limit: scriptLimit, Option: "--start-timeout"}
	if f.StartTimeout != nil {
		limit.Limit = f.startTimeout()
	}
	if t := f.ElasticTimeout; t != nil && time.Duration(*t)*time.Second < limit.Limit {
		limit = driver.Limit{Limit: time.Duration(*t) * time.Second, Option: "--elastic-timeout"}
	}
	return limit
}

// patience is how long a worker may be silent before the driver gives it up: as long as the ranks wait for one another.
func patience(heartbeat string) time.Duration {
	seconds, err := strconv.ParseFloat(heartbeat, 64)
	switch {
	case err != nil || seconds < 0:
		return 30 * time.Second
	case seconds == 0 || seconds > 1e6:
		return 1e6 * time.Second
	}
	return time.Duration(seconds * float64(time.Second))
}

// discovery runs a script that lists hosts. One goroutine at a time uses it.
type discovery struct {
	script string
	slots  int // for a host whose line has no number

	last  []membership.Host // the last answer; nil before the first
	wrong string            // what was wrong with some lines of the last answer
	say   func(format string, args ...any)
}

// hosts runs the script through a shell, as Horovod does, and parses its lines.
func (d *discovery) hosts(ctx context.Context) ([]membership.Host, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, scriptLimit, fmt.Errorf("it has not ended within %v", scriptLimit))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", d.script)
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
			err = fmt.Errorf("it has printed more than %d KiB", maxScriptOutput>>10)
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = context.Cause(ctx)
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			advice = d.advice(err)
		}
		return nil, fmt.Errorf("%s: %w%s%s", d.script, err, after(lastOf(errs.kept.String())), advice)
	}
	return d.read(out.kept.String())
}

// read returns the hosts of an answer. If some lines of it make no sense, the others count, and the user hears of it
// once. The first answer must be whole, because a user is there to mend the script; and so must be one without any good
// line, such as an error message.
func (d *discovery) read(text string) ([]membership.Host, error) {
	hosts, bad, err := d.parse(text)
	if err != nil && (d.last == nil || len(hosts) == 0) {
		return nil, err
	}
	wrong := ""
	if err != nil {
		hosts = d.keep(hosts, bad)
		wrong = err.Error()
	}
	if wrong != "" && wrong != d.wrong {
		d.say("discover hosts: %s; its other lines count", wrong)
	}
	d.wrong, d.last = wrong, append([]membership.Host{}, hosts...)
	return hosts, nil
}

// keep adds the hosts of the last answer about which only bad lines say something: a mistake drains no host.
func (d *discovery) keep(hosts []membership.Host, bad []string) []membership.Host {
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
func (d *discovery) advice(err error) string {
	var exit *exec.ExitError
	name, rest, _ := strings.Cut(strings.TrimSpace(d.script), " ")
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

// parse parses lines like "host" or "host:slots". If a host has several lines, the last one counts. A host with 0 slots
// is left out: it has none now. bad are the lines that make no sense; err says so of the first.
func (d *discovery) parse(text string) (hosts []membership.Host, bad []string, err error) {
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
func (d *discovery) parseLine(line string) (placement.Host, error) {
	entry := line
	if !placement.HostEntry().MatchString(entry) {
		entry = fmt.Sprintf("%s:%d", line, d.slots)
	}
	if !placement.HostEntry().MatchString(entry) {
		return placement.Host{}, fmt.Errorf("%s printed %q: a line must look like host or host:slots", d.script,
			printable.Short(line))
	}
	colon := strings.LastIndexByte(entry, ':')
	h, err := placement.NewHost(entry[:colon], entry[colon+1:])
	if err != nil {
		return placement.Host{}, fmt.Errorf("%s printed %q: %w", d.script, printable.Short(line), err)
	}
	return h, nil
}

// limited keeps the first maxScriptOutput bytes that are written to it.
type limited struct {
	kept bytes.Buffer
	over bool // there was more than maxScriptOutput
}

func (l *limited) Write(p []byte) (int, error) {
	if l.kept.Len()+len(p) > maxScriptOutput {
		l.over = true
		return 0, fmt.Errorf("more than %d bytes of output", maxScriptOutput)
	}
	return l.kept.Write(p)
}

// elasticHosts are the hosts of an elastic job that has no discovery script.
func (f *flags) elasticHosts() ([]membership.Host, error) {
	hosts, err := f.hosts()
	if err != nil {
		return nil, err
	}
	if f.Hosts == "" && f.Hostfile == "" && f.MaxNP != nil {
		hosts[0].Slots = *f.MaxNP
	}
	var merged []membership.Host
	index := map[string]int{} // a host that is named twice counts as one host
	total := 0
	for _, h := range hosts {
		total += h.Slots
		i, found := index[h.Name]
		if !found {
			i = len(merged)
			index[h.Name] = i
			merged = append(merged, membership.Host{Name: h.Name})
		}
		merged[i].Slots += h.Slots
	}
	if total < f.NumProc {
		return nil, placement.TooFewSlots(hosts, f.NumProc, total)
	}
	if total > placement.MaxSlots {
		return nil, errors.New("the hosts have too many slots")
	}
	return merged, nil
}
