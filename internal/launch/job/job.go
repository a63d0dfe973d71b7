// Package job runs a job: it starts all ranks, follows them to their end, and says why the job has failed.
//
//	LaunchRanks   a fixed number of ranks, on hosts that this launcher reaches
//	LaunchNodes   each node has a launcher, which node 0's leads
//	RunElastic    the ranks come and go, as package driver decides
//
// All three wait for the end of the job, and return the launcher's exit code. The ranks run in crews: spawn's on this
// host, and remote's on others. Package ending decides when they are signalled, and which of them failed first.
// An Audience sees the job. This package must not read a command line.
package job

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/meeting"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
	"github.com/gorovod/gorovod/internal/tools/progress"
)

// TermGrace is the time between SIGTERM and SIGKILL; tests shorten it.
var TermGrace = 5 * time.Second

// Job is a command to run once for each slot.
type Job struct {
	// Name is the launcher's name in messages.
	Name string
	// Path is the program's file on this host. Args is its whole argv, Args[0] included. Other hosts look Args[0] up.
	Path  string
	Args  []string
	Slots []placement.Slot
	// Env is the environment of every process, without its slot's variables.
	Env []string
	// Remote connects to other hosts. Local reports which hosts are this one.
	Remote remote.Shell
	Local  func(host string) bool
	// Apart: another launcher started the other hosts' agents. The ranks there get the hosts' own environment and
	// Settings alone, and the agents hear how the job ended. Otherwise the ranks there get Env, without the variables
	// that make sense on one host only.
	Apart    bool
	Settings []string
	// Interfaces are the interfaces that the job may use; empty for any.
	Interfaces []string
	// OutputDir is a folder for the processes' output, besides Stdout and Stderr; empty for none.
	OutputDir string
	// Input is each process's stdin; nil for an empty one.
	Input []byte
	// ResultDir is the folder of the processes' third streams, in files named after the ranks; empty for none. In an
	// elastic job these are the ranks of the last world. A worker without a rank there has a file worker.<number>.
	ResultDir  string
	Timestamps bool
	Verbose    bool
	// Audience shows the job; nil for nobody.
	Audience Audience
	// Certificates are for ranks that begin TLS.
	Certificates auth.Certificates
	// Grace is how long the other ranks may go on after the first failure.
	Grace          time.Duration
	Stdout, Stderr io.Writer

	out, err *output.Printer
	progress *progress.Line // nil before begin
	large    atomic.Bool    // the present world is large: see largeJob
	worlds   atomic.Int64   // how many there were
	moved    chan struct{}  // capacity 1: some output was written
	taking   sync.WaitGroup // commands whose output is still coming
	hurried  bool           // the job waits no longer for readers; only the goroutine that runs the job uses it
	lost     atomic.Bool    // some output could not be written
	hungUp   chan struct{}  // closed when the reader of stdout or stderr is gone
	hangUp   sync.Once
	server   *rendezvous.Server
	running  atomic.Pointer[func() map[string]spawn.Crew] // lists the crews; nil before there are any
	ranks    []*rank
	why      output.Report // why the job has failed; only the goroutine that runs the job uses it
}

// Run starts the job and returns when nothing of it is left. Call it once. An error means that the job could not start.
// The exit code is:
//   - that of the process that failed first and made the others fail; 128+n if signal n killed it
//   - 128+n if signal n interrupted the launcher; SIGPIPE stands for a reader of the output that is gone
//   - 1 if all went well but output could not be written
func (j *Job) Run() (code int, err error) {
	signals, end := j.begin()
	defer end()
	key := make([]byte, 32)
	rand.Read(key)
	hosts, far := j.hosts()
	point, err := j.meet(len(far) > 0)
	if err != nil {
		return 1, err
	}
	defer point.Close()
	j.server = rendezvous.NewServer(key, len(j.Slots))
	j.server.Certificates = j.Certificates
	j.server.Knocks = auth.NewKnocks(func(text string) { j.say("%s", text) })
	j.watchWorld(j.server, len(j.Slots), "", "")
	defer j.server.Close()
	for _, l := range point.Listeners {
		go j.server.Serve(l)
	}
	heard := make(chan news, 3*len(j.Slots))
	if err := j.prepare(heard); err != nil {
		return 1, err
	}
	j.Audience.SetLines(j.linesOf)
	crews, code, err := j.muster(hosts, far, hex.EncodeToString(key), signals)
	if err != nil || code != 0 {
		j.closeFiles()
		return code, err
	}
	defer remote.Dismiss(crews)
	list := func() map[string]spawn.Crew { return crews }
	j.running.Store(&list)
	j.taking.Add(len(j.ranks))
	j.start(crews, key, point)
	code, err = j.follow(signals, heard)
	code = j.written(code)
	if j.Apart {
		remote.Farewell(crews, code, err)
	}
	return code, err
}

// written returns code; if code is 0 and output was lost, it returns the code for that.
func (j *Job) written(code int) int {
	if code == 0 && j.lost.Load() {
		code = 1
		if j.isHungUp() {
			code = ending.SignalCode(syscall.SIGPIPE)
		}
	}
	return code
}

// hosts lists the hosts of the slots in their order, and those that are not this one.
func (j *Job) hosts() (all, far []string) {
	seen := map[string]bool{}
	for _, s := range j.Slots {
		if seen[s.Host] {
			continue
		}
		seen[s.Host] = true
		all = append(all, s.Host)
		if !j.Local(s.Host) {
			far = append(far, s.Host)
		}
	}
	return all, far
}

// meet opens the rendezvous: on loopback if the job has no other hosts.
func (j *Job) meet(far bool) (m *meeting.Point, err error) {
	if !far {
		m, err = meeting.Here()
	} else {
		m, err = meeting.Anywhere(j.Interfaces)
	}
	if err == nil {
		j.tell("the rendezvous is at %v", m.Addrs)
	}
	return m, err
}

// muster makes the crews. A signal, or a reader of the output that goes, interrupts it; then code is the exit code.
func (j *Job) muster(hosts, far []string, secret string, signals <-chan os.Signal) (crews map[string]spawn.Crew,
	code int, err error) {
	slots := map[string]int{}
	for _, s := range j.Slots {
		slots[s.Host]++
	}
	if len(far) > 0 {
		j.tell("connecting to %d hosts: %s", len(far), strings.Join(far, " "))
	}
	c := &remote.Calls{Shell: &j.Remote}
	if len(far) > 0 {
		j.awaitHosts(c, len(far))
		defer j.awaitRanks(j.server, len(j.Slots))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		crews, err = remote.Crews(ctx, hosts, j.Local, c, wire.Assignment{Dir: remote.WorkingDirectory(),
			Secret: secret, Input: j.Input, Interfaces: j.Interfaces}, slots)
	}()
	interrupted := syscall.Signal(0)
	select {
	case s := <-signals:
		interrupted = s.(syscall.Signal)
	case <-j.hungUp:
		interrupted = syscall.SIGPIPE
	case <-done:
	}
	cancel(remote.ErrInterrupted)
	<-done
	switch {
	case interrupted != 0:
		remote.Dismiss(crews)
		if interrupted != syscall.SIGPIPE {
			j.say("%s", ending.Interruption(interrupted))
		}
		return nil, ending.SignalCode(interrupted), nil
	case err != nil:
		return nil, 1, err
	}
	j.noteInterfaces(crews)
	return crews, 0, nil
}

// noteInterfaces reports which of the job's interfaces each host has. It warns of interfaces that no host has, perhaps
// misspelt, and of hosts that have none at which other hosts can reach them.
func (j *Job) noteInterfaces(crews map[string]spawn.Crew) {
	own, err := meeting.Usable(j.Interfaces)
	if len(j.Interfaces) == 0 || err != nil {
		return
	}
	found, hosts := [][]string{reach.Names(own)}, []string{"this host"}
	for _, host := range slices.Sorted(maps.Keys(crews)) {
		if far, ok := crews[host].(*remote.Crew); ok {
			found, hosts = append(found, far.Ready.Interfaces), append(hosts, host)
			j.tell("%s has %s", host, strings.Join(far.Ready.Interfaces, ", "))
		}
	}
	if names := meeting.Missing(j.Interfaces, found); len(found) > 1 && len(names) > 0 {
		j.say("%s: no host has %s", meeting.InterfacesOption, strings.Join(names, ", "))
	}
	if cut := meeting.Secluded(hosts, found); len(found) > 1 && len(cut) > 0 {
		j.say("%s: loopback (lo) is all that there is of these on %s, and it leads to no other host: name an "+
			"interface that does", meeting.InterfacesOption, strings.Join(cut, ", "))
	}
}

// start lets the crews start all ranks.
func (j *Job) start(crews map[string]spawn.Crew, key []byte, m *meeting.Point) {
	local := j.Env
	others := placement.ForOthers(j.Env)
	if j.Apart {
		others = j.Settings
	}
	common := map[string]map[string]string{}
	for _, r := range j.ranks {
		r.crew = crews[r.Host]
		far, _ := r.crew.(*remote.Crew)
		set, ok := common[r.Host]
		if !ok {
			addrs, interfaces := m.ForThisHost(), j.Interfaces
			if far != nil {
				addrs = m.SeenFrom(far.Ready.Launcher)
				j.tell("%s looks for the rendezvous at %v", r.Host, addrs)
			}
			if m.Local {
				interfaces = []string{"lo"}
			}
			set = placement.Shared(key, addrs, interfaces)
			common[r.Host] = set
		}
		if far != nil {
			r.crew.Start(r.Rank, spawn.Command{Args: j.Args, Env: r.Environ(others, set),
				Results: j.ResultDir != ""}, r)
		} else {
			r.crew.Start(r.Rank, spawn.Command{Path: j.Path, Args: j.Args, Env: r.Environ(local, set),
				Results: j.ResultDir != ""}, r)
		}
	}
}

// lose notes output that could not be written, and reports it on the other printer. If the reader has gone, as head
// does, it wants no more output, and no message.
func (j *Job) lose(err error, elsewhere *output.Printer) {
	j.lost.Store(true)
	if output.BrokenPipe(err) {
		j.hangUp.Do(func() { close(j.hungUp) })
		return
	}
	elsewhere.Say("%s", logging.Message(slog.LevelError, j.Name, "output is lost: "+err.Error()))
}

func (j *Job) isHungUp() bool {
	select {
	case <-j.hungUp:
		return true
	default:
		return false
	}
}

// prepare makes the ranks, and does everything that can fail before a process starts.
func (j *Job) prepare(heard chan<- news) error {
	for _, slot := range j.Slots {
		r := &rank{Slot: slot, supervised: supervised{job: j, id: slot.Rank, host: slot.Host}, news: heard}
		j.ranks = append(j.ranks, r)
		if err := r.open(r.directory(), fmt.Sprint(r.Rank)); err != nil {
			j.closeFiles()
			return err
		}
	}
	return nil
}

// linesOf returns the last lines of a rank. It is safe on any goroutine after prepare.
func (j *Job) linesOf(number int) (stdout, stderr string, ok bool) {
	if number >= len(j.ranks) {
		return "", "", false
	}
	s := j.ranks[number].streams
	return s[spawn.Stdout].Last(), s[spawn.Stderr].Last(), true
}

func (j *Job) closeFiles() {
	for _, r := range j.ranks {
		r.closeFiles()
	}
}

// say prints a message of the launcher's own.
func (j *Job) say(format string, args ...any) { j.log(slog.LevelWarn, format, args...) }

// sayError prints an error that fails the job, or a part of it.
func (j *Job) sayError(format string, args ...any) { j.log(slog.LevelError, format, args...) }

func (j *Job) log(level slog.Level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.announce(level, text, text)
}

// sayFailure prints the cause of the job's failure. lines are the last lines of a rank's stderr, which can hold
// secrets: only the launcher's stderr gets them, not the job's readers and collectors.
func (j *Job) sayFailure(cause, lines, more string) {
	j.announce(slog.LevelError, cause+lines+more, cause+more)
}

// announce prints text on stderr, and shows the job's readers and collectors shown instead.
func (j *Job) announce(level slog.Level, text, shown string) {
	if level >= slog.LevelError {
		j.Audience.Fail(shown)
	}
	if level >= slog.LevelWarn {
		j.Audience.Note(shown)
	}
	j.err.Say("%s", logging.Message(level, j.Name, text))
}

// sayWhy prints the cause of the job's failure, its last message.
func (j *Job) sayWhy(text string) {
	j.why = output.Report{Text: text}
	j.sayError("%s", text)
}

// tell prints a message only with --verbose.
func (j *Job) tell(format string, args ...any) {
	if j.Verbose {
		j.log(slog.LevelInfo, format, args...)
	}
}

// watchWorld lets the job's audience follow the ranks that meet at s: see Audience.Follow.
func (j *Job) watchWorld(s *rendezvous.Server, size int, cause membership.Cause, words string) {
	j.Audience.Follow(s, size, cause, words)
	j.worlds.Add(1)
	j.awaitRanks(s, size)
}

// summarize says where the time of the job went, if it was long enough.
func (j *Job) summarize() {
	if text := j.Audience.Summary(); text != "" {
		j.err.Say("%s", logging.Message(slog.LevelInfo, j.Name, text))
	}
}
