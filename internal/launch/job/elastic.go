package job

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/discovery"
	"github.com/gorovod/gorovod/internal/launch/driver"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/meeting"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// elasticJob is a job whose processes come and go: package driver decides, and elasticJob runs them by crews.
type elasticJob struct {
	*Job
	key     []byte
	driver  *driver.Driver
	slots   func(host string) int // how many commands a host may run at a time
	fleet   *fleet                // the nodes, if each has a launcher; else nil
	going   *leavers              // the hosts that leave, if a script lists the hosts; else nil
	isLocal func(host string) bool
	calls   remote.Calls // connections to other hosts
	alone   bool         // the hosts are fixed, and all of them are this one

	mu      sync.Mutex
	near    *meeting.Point // where workers of this host find the driver
	far     *meeting.Point // where workers of other hosts find the driver; nil while there are none
	serving sync.WaitGroup
	here    *spawn.LocalCrew
	crews   map[string]*post  // of other hosts
	seen    map[string]string // the launcher's address as other hosts have seen it
	workers map[int]*workerProcess
	shown   map[int]int64 // by worker that has failed: the number of the output line that was the last of its stderr
	started int           // how many workers have started: their numbers are below
	closed  bool
}

// post is a crew of another host, which may still be connecting.
type post struct {
	ready chan struct{} // closed when crew or err is set
	crew  *remote.Crew
	err   error
}

// RunElastic is horovodrun for elastic jobs.
func RunElastic(name string, f *flags.Flags, input []byte, open Opener) (code int, why output.Report, err error) {
	env := f.Environ(os.Environ())
	o := driver.Options{Config: f.Membership(env), DiscoverEvery: discovery.Interval, Grace: f.Grace(),
		Certificates: f.Certificates}
	var d *discovery.Script
	if f.DiscoveryScript != "" {
		d = &discovery.Script{Command: f.DiscoveryScript, Slots: 1}
		if f.SlotsPerHost != nil {
			d.Slots = *f.SlotsPerHost
		}
		o.Discover, o.FirstDiscovery, o.SlowDiscovery = d.Hosts, f.FirstDiscovery(), discovery.Slow
	} else if o.Hosts, err = f.ElasticHosts(); err != nil {
		return ending.UsageCode, why, err
	}
	path, code, err := spawn.FindCommand(f.Command[0], os.Getenv("PATH"))
	if err != nil {
		return code, why, err
	}
	e := newElasticJob(f, name, path, env, input)
	e.Remote = f.RemoteShell()
	if o.Discover != nil {
		e.going = &leavers{job: e, hosts: map[string]bool{}}
		o.Discover = e.going.without(o.Discover)
		d.Say = e.say
	}
	far := f.DiscoveryScript != "" || slices.ContainsFunc(o.Hosts,
		func(h membership.Host) bool { return !placement.IsLocal(h.Name) })
	return launchElastic(f, e, o, far, open)
}

// newElasticJob makes the job, without the way to other hosts.
func newElasticJob(f *flags.Flags, name, path string, env []string, input []byte) *elasticJob {
	e := &elasticJob{
		Job: &Job{Name: name, Path: path, Args: f.Command, Env: env,
			Interfaces: f.NetworkInterfaces, OutputDir: f.OutputFilename, Input: input, ResultDir: f.Results,
			Timestamps: f.PrefixTimestamp, Verbose: f.Verbose, Stdout: RanksStdout, Stderr: os.Stderr},
		slots: func(string) int { return 64 }, isLocal: placement.IsLocal, crews: map[string]*post{},
		seen: map[string]string{}, workers: map[int]*workerProcess{}, shown: map[int]int64{},
	}
	e.calls.Shell = &e.Remote
	return e
}

// launchElastic runs the job to its end. far: the job may have other hosts.
func launchElastic(f *flags.Flags, e *elasticJob, o driver.Options, far bool, open Opener) (code int,
	why output.Report, err error) {
	if f.OutputFilename != "" { // otherwise each worker would fail on its own, and be tried again
		if err := os.MkdirAll(f.OutputFilename, 0o777); err != nil {
			return 1, why, fmt.Errorf("--output-filename: %w", err)
		}
	}
	for _, note := range f.Notes(far) {
		logging.Warn(e.Name, note)
	}
	if e.Audience, err = open(f.NumProc); err != nil {
		return ending.UsageCode, why, err
	}
	defer e.Audience.Close()
	e.Audience.SetLines(e.linesOf)
	o.Serves, o.Failed = e.watchWorld, e.Audience.Fail
	code, err = e.run(o)
	e.Audience.End(code, e.why, err)
	return code, e.why, err
}

// run runs the job to its end. The exit codes are those of Job.Run, for the first failure of the last epoch.
func (e *elasticJob) run(o driver.Options) (code int, err error) {
	signals, end := e.begin()
	defer end()
	e.key = make([]byte, 32)
	rand.Read(e.key)
	if e.near, err = meeting.Here(); err != nil {
		return 1, err
	}
	o.Key, o.Start, o.Signal, o.Meet, o.Say, o.Debug = e.key, e.start, e.signal, e.meet, e.say, e.tell
	e.alone = o.Discover == nil && e.fleet == nil && !slices.ContainsFunc(o.Hosts,
		func(h membership.Host) bool { return !e.isLocal(h.Name) })
	e.driver = driver.New(o)
	e.serve(e.near)
	defer e.close()
	var interrupted syscall.Signal
	if e.fleet != nil {
		defer func() {
			e.fleet.close()
			if interrupted != syscall.SIGTERM { // on SIGTERM node 0 comes back, and the others wait for it
				remote.Farewell(e.remoteCrews(), code, err)
			}
		}()
	}
	if e.here, err = spawn.NewLocalCrew("localhost", hex.EncodeToString(e.key), true); err != nil {
		return 1, err
	}
	if err := e.here.Feed(e.Input); err != nil {
		return 1, err
	}
	list := func() map[string]spawn.Crew {
		crews := e.remoteCrews()
		crews[e.here.Host()] = e.here
		return crews
	}
	e.running.Store(&list)
	if e.fleet != nil {
		e.fleet.open()
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { e.watch(signals, over) })
	ctx, cancel := context.WithCancel(context.Background())
	outcome, err := e.driver.Run(ctx)
	cancel()
	close(over)
	watching.Wait()
	interrupted, e.hurried = outcome.Interrupted, e.hurried || outcome.Hurried
	if late := e.drain(signals, interrupted != 0); interrupted == 0 && late != 0 {
		interrupted, outcome.Reason = late, ending.Interruption(late)
	}
	if unnamed := nameResults(e.ResultDir, outcome.Ranks, e.started); err == nil {
		err = unnamed
	}
	switch {
	case err != nil:
		return 1, err
	case interrupted == syscall.SIGPIPE:
		return ending.SignalCode(interrupted), nil // the reader is gone, so there is nothing to say
	case interrupted != 0:
		e.summarize()
		e.sayWhy(outcome.Reason)
		return ending.SignalCode(interrupted), nil
	case outcome.Reason == "" && outcome.Failure == nil:
		e.summarize()
	}
	return e.written(e.conclude(outcome)), nil
}

// watch passes on to the driver what ends the job from outside, until the job is over.
func (e *elasticJob) watch(signals <-chan os.Signal, over <-chan struct{}) {
	hungUp := e.hungUp
	for {
		select {
		case s := <-signals:
			sig := s.(syscall.Signal)
			e.driver.Interrupt(sig, ending.Interruption(sig))
		case <-hungUp:
			hungUp = nil
			e.driver.HangUp(ending.Interruption(syscall.SIGPIPE))
		case <-over:
			return
		}
	}
}

// conclude says why the job ended, unless it simply finished, and returns the exit code.
func (e *elasticJob) conclude(o driver.Outcome) int {
	code, text := Verdict(o)
	lines := ""
	if f := o.Failure; f != nil {
		e.mu.Lock()
		shown := e.shown[f.Worker]
		e.mu.Unlock()
		e.why.Stderr = f.Death.Stderr
		lines = e.lastLines(f.Death.Stderr, output.LinePrefix(f.Worker, spawn.StreamNames[spawn.Stderr]), shown)
		if f.Death.Reason == "" && f.Death.Signal == 0 {
			lines = lastException(f.Death.Stderr) + lines
		}
	}
	e.why.Text = text
	if text != "" {
		e.sayFailure(text, lines, "")
	}
	return code
}

// Verdict is the exit code of a job with this outcome, and why it ended; empty if it simply finished.
func Verdict(o driver.Outcome) (code int, text string) {
	var b strings.Builder
	b.WriteString(o.Reason)
	if o.Reason != "" {
		code = 1
	}
	if f := o.Failure; f != nil {
		code = max(1, ending.Code(f.Death)) // a failed worker may have ended with 0
		switch {
		case o.Reason != "" && o.Earlier:
			b.WriteString("\nthe first failure of the last world: ")
		case o.Reason != "":
			b.WriteString("\nthe first failure: ")
		}
		fmt.Fprint(&b, f)
		if f.Death.Reason != "" {
			fmt.Fprintf(&b, "\nit reported: %s", f.Death.Reason)
		}
	}
	return code, b.String()
}

// serve has the driver serve a meeting point.
func (e *elasticJob) serve(m *meeting.Point) {
	for _, l := range m.Listeners {
		e.serving.Go(func() { e.driver.Serve(l) })
	}
}

// meet opens an epoch's rendezvous: on loopback if the job has no other hosts.
func (e *elasticJob) meet() ([]net.Listener, func(host string) []string, error) {
	e.mu.Lock()
	far := e.far != nil
	e.mu.Unlock()
	var m *meeting.Point
	var err error
	if far {
		m, err = meeting.Anywhere(e.Interfaces)
	} else {
		m, err = meeting.Here()
	}
	if err != nil {
		return nil, nil, err
	}
	return m.Listeners, func(host string) []string {
		addrs := m.ForThisHost()
		e.mu.Lock()
		if launcher, other := e.seen[host]; other {
			addrs = m.SeenFrom(launcher)
		}
		e.mu.Unlock()
		var list []string
		for _, a := range addrs {
			list = append(list, a.String())
		}
		return list
	}, nil
}

// start begins to start a worker; it does not block.
func (e *elasticJob) start(a membership.Start) {
	w := &workerProcess{supervised: supervised{job: e.Job, id: a.Worker, host: a.Host}, elastic: e}
	e.taking.Add(1)
	e.mu.Lock()
	e.workers[a.Worker] = w
	e.started = max(e.started, a.Worker+1)
	e.mu.Unlock()
	go func() {
		if err := e.place(w, a); err != nil {
			spawn.NotStarted(w, 1, err)
			w.Over()
		}
	}()
}

// place lets the crew of a host start a worker.
func (e *elasticJob) place(w *workerProcess, a membership.Start) error {
	if err := w.prepare(); err != nil {
		return err
	}
	if e.isLocal(a.Host) {
		interfaces := e.Interfaces
		if e.alone { // otherwise other hosts may come, whose workers must reach this one
			interfaces = []string{"lo"}
		}
		w.run(e.here, spawn.Command{Path: e.Path, Args: e.Args, Env: e.environ(e.Env, a, e.near.ForThisHost(),
			interfaces), Results: e.ResultDir != "", LateOutput: e.lateOutput(w, true)})
		return nil
	}
	c, err := e.remote(a.Host)
	if err != nil {
		e.driver.HostLost(a.Host)
		return err
	}
	others := placement.ForOthers(e.Env)
	if e.Apart {
		others = e.Settings
	}
	w.run(c, spawn.Command{Args: e.Args, Env: e.environ(others, a, e.far.SeenFrom(c.Ready.Launcher), e.Interfaces),
		Results: e.ResultDir != "", LateOutput: e.lateOutput(w, false)})
	return nil
}

// lateOutput is where the output of a worker goes once this launcher is gone: to the files of --output-filename, or to
// one on the worker's host.
func (e *elasticJob) lateOutput(w *workerProcess, here bool) string {
	if dir, err := filepath.Abs(w.directory()); here && e.OutputDir != "" && err == nil {
		return dir
	}
	return fmt.Sprintf("gorovod-%d-worker-%d.log", os.Getpid(), w.id)
}

// errEnding: the job is over, and its launcher takes in nobody.
var errEnding = errors.New("the launcher is ending")

// meetOthers makes the meeting point for workers on other hosts, unless it is there.
func (e *elasticJob) meetOthers() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errEnding
	}
	if e.far != nil {
		return nil
	}
	m, err := meeting.Anywhere(e.Interfaces)
	if err != nil {
		return err
	}
	e.far = m
	e.serve(m)
	return nil
}

// remote returns the crew of another host. If there is none, it connects, and blocks meanwhile.
func (e *elasticJob) remote(host string) (*remote.Crew, error) {
	if err := e.meetOthers(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	p := e.crews[host]
	if p != nil {
		e.mu.Unlock()
		<-p.ready
		return p.crew, p.err
	}
	p = &post{ready: make(chan struct{})}
	e.crews[host] = p
	e.mu.Unlock()
	e.tell("connecting to %s", host)
	crews, err := remote.Crews(context.Background(), []string{host}, func(string) bool { return false }, &e.calls,
		wire.Assignment{Dir: remote.WorkingDirectory(), Secret: hex.EncodeToString(e.key), Input: e.Input,
			Interfaces: e.Interfaces, Leaves: e.going != nil}, map[string]int{host: e.slots(host)})
	p.err = err
	if err == nil {
		p.crew, _ = crews[host].(*remote.Crew)
		e.mu.Lock()
		e.seen[host] = p.crew.Ready.Launcher
		e.mu.Unlock()
	}
	close(p.ready)
	if err != nil {
		e.sayError("%v", err)
		e.forget(host, p)
		return nil, err
	}
	go func() {
		if e.going != nil {
			e.going.await(p.crew)
		}
		<-p.crew.Lost()
		e.forget(host, p)
	}()
	return p.crew, nil
}

// forget drops a useless crew, so that the next worker of its host gets another.
func (e *elasticJob) forget(host string, p *post) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.crews[host] == p {
		delete(e.crews, host)
	}
}

// linesOf are the last lines of a worker that has been started, if there is such a worker.
func (e *elasticJob) linesOf(number int) (stdout, stderr string, ok bool) {
	e.mu.Lock()
	w := e.workers[number]
	e.mu.Unlock()
	if w == nil || !w.opened.Load() {
		return "", "", w != nil
	}
	return w.streams[spawn.Stdout].Last(), w.streams[spawn.Stderr].Last(), true
}

// signal signals a worker's process.
func (e *elasticJob) signal(id int, sig syscall.Signal) {
	e.mu.Lock()
	w := e.workers[id]
	e.mu.Unlock()
	if w != nil {
		w.signal(sig)
	}
}

// close ends all remaining processes.
func (e *elasticJob) close() {
	e.mu.Lock()
	e.closed = true
	posts := maps.Clone(e.crews)
	e.mu.Unlock()
	e.near.Close()
	if e.far != nil {
		e.far.Close()
	}
	var closing sync.WaitGroup
	for _, p := range posts {
		closing.Go(func() {
			<-p.ready
			if p.crew != nil {
				p.crew.Close()
			}
		})
	}
	if e.here != nil {
		closing.Go(e.here.Close)
	}
	closing.Wait()
	e.serving.Wait()
}

// inherited matches the variables of an outer job in which this launcher runs.
var inherited = lazyregexp.New(
	`^(HOROVOD_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|CROSS_RANK|CROSS_SIZE|GLOO_RENDEZVOUS_ADDR|GLOO_RENDEZVOUS_PORT)|GOROVOD_RENDEZVOUS_ADDRS|GOROVOD_ELASTIC_(DRIVER|WORKER))=`)

// environ is the environment of a worker's process.
func (e *elasticJob) environ(base []string, a membership.Start, addrs []netip.AddrPort, interfaces []string) []string {
	var env []string
	for _, v := range base {
		if !inherited().MatchString(v) {
			env = append(env, v)
		}
	}
	return SlotOf(a).Environ(env, ElasticVariables(e.key, a, addrs, interfaces))
}

// ElasticVariables tell a worker its driver's addresses. At each hvd.init() the driver tells the worker its rank, and
// where to meet the others. Horovod's variables have the driver's address, for programs that look before hvd.init().
func ElasticVariables(key []byte, a membership.Start, addrs []netip.AddrPort, interfaces []string) map[string]string {
	set := placement.Shared(key, addrs, interfaces)
	set[spawn.ElasticVariable] = set[meeting.CandidatesVariable]
	delete(set, meeting.CandidatesVariable)
	set["HOROVOD_ELASTIC"], set["GOROVOD_ELASTIC_WORKER"] = "1", strconv.Itoa(a.Worker)
	return set
}

// SlotOf is the place that the driver foresees for a worker at its start.
func SlotOf(a membership.Start) placement.Slot {
	p := a.Place
	return placement.Slot{Host: p.Host, Rank: p.Rank, Size: p.Size, LocalRank: p.LocalRank, LocalSize: p.LocalSize,
		CrossRank: p.CrossRank, CrossSize: p.CrossSize}
}
