package launch

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/job"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
	"golang.org/x/sys/unix"
)

// BenchmarkHosts measures how a launch grows with the number of hosts, without ssh's own costs. This host plays all
// hosts: each has an agent, a supervisor, a shell and a command.
func BenchmarkHosts(b *testing.B) {
	for _, n := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			env := remotely(b)
			for b.Loop() {
				l := launched(b, []string{env}, "-np", fmt.Sprint(n), "-H", farHosts(n, 1), "true")
				if err := l.Run(); err != nil {
					b.Fatalf("%v: %s", err, &l.stderr)
				}
			}
		})
	}
}

// The network of BenchmarkLauncher: a distant one, and the rounds that ssh needs on it before it runs anything (TCP,
// versions, two for the key exchange, service, two for authentication, session, command).
const (
	standInRound = 50 * time.Millisecond
	standInLogin = 8 * standInRound
)

// BenchmarkLauncher measures how the launcher's own part grows. The hosts are stand-ins that cost next to no processor
// time, but answer as late as distant hosts. It counts the rounds that follow one on another, including those of the
// login.
func BenchmarkLauncher(b *testing.B) {
	for _, n := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			spent := processorTime()
			for b.Loop() {
				if code, err := standInJob(n, io.Discard).Run(); code != 0 || err != nil {
					b.Fatalf("%d, %v", code, err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/standInRound.Seconds(), "rounds")
			b.ReportMetric(float64(processorTime()-spent)/float64(b.N)/float64(n)/1e3, "us-cpu/host")
		})
	}
}

// TestAJobThatNothingShows checks that a job needs no audience.
func TestAJobThatNothingShows(t *testing.T) {
	var out bytes.Buffer
	code, err := standInJob(2, &out).Run()
	if want := "[0]<stdout>:hello\n"; code != 0 || err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%d, %v, and its output is %q", code, err, &out)
	}
}

// standInJob has n ranks, each on a host of its own that is a goroutine. Nothing shows the job.
func standInJob(n int, stdout io.Writer) *job.Job {
	j := &job.Job{Name: "horovodrun", Args: []string{"true"}, Env: os.Environ(),
		Local:  func(string) bool { return false },
		Remote: remote.Shell{Timeout: 30 * time.Second, Getenv: os.Getenv, Open: standIn},
		Stdout: stdout, Stderr: os.Stderr}
	for r := range n {
		j.Slots = append(j.Slots, placement.Slot{Host: fmt.Sprint("far", r), Rank: r, Size: n, LocalSize: 1,
			CrossRank: r, CrossSize: n})
	}
	return j
}

func processorTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// standIn opens a line to a host that is a goroutine.
func standIn(host string) (*remote.Line, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	died := make(chan struct{})
	l := remote.NewLine("ssh", in, out, died, func() { theirIn.Close() })
	go func() {
		defer close(died)
		defer theirOut.Close()
		defer theirIn.Close()
		playHost(theirIn, theirOut)
	}()
	return l, nil
}

// playHost is an agent whose commands end at once.
func playHost(in io.Reader, out io.Writer) {
	half := func() { time.Sleep(standInRound / 2) }
	frames := &wire.Receiver{R: bufio.NewReader(in)}
	s := &wire.Sender{W: out}
	time.Sleep(standInLogin)
	wire.Greet(out, wire.AgentGreeting, "")
	wire.ReadLine(frames.R, wire.MaxGreeting)
	for {
		f, err := frames.Next()
		half()
		switch {
		case err != nil:
			half()
			return
		case f.Note == nil:
		case f.Note.Type == wire.JobNote:
			half()
			s.Send(wire.Note{Type: wire.ReadyNote, Ready: &wire.Readiness{PID: 1}})
		case f.Note.Type == wire.StartNote:
			half()
			s.Send(wire.Note{Type: wire.StartedNote, ID: f.Note.ID, PID: 2})
			s.SendOutput(f.Note.ID, spawn.Stdout, []byte("hello\n"))
			s.Send(wire.Note{Type: wire.EndedNote, ID: f.Note.ID, PID: 2})
			s.Send(wire.Note{Type: wire.GoneNote, ID: f.Note.ID})
			s.Send(wire.Note{Type: wire.OverNote, ID: f.Note.ID})
		case f.Note.Type == wire.SignalNote && f.Note.Signal == int(syscall.SIGKILL):
			return
		}
	}
}
