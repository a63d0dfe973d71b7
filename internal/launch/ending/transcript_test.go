package ending

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/test/transcript"
	"golang.org/x/sys/unix"
)

// TestTranscripts plays the scenarios in testdata, one file each. Each command may have at=SECONDS; without it time
// stands still:
//
//	job np=4 [survives]          these processes run: a stage Asked takes 30 s, Terminated 5 s, Killed 12 s
//	led [leaves=(SIGTERM)]       this host's part of a job runs, as process 0, and leaves the job with these signals
//	failed w=1 [code=1] [signal=9] [lost=text] [ended=SECONDS] [epoch=1] [rank=1]   a process has failed, now or then
//	gone w=(0,1)                 nothing is left of them
//	unstartable                  a process could not be started
//	signal name=SIGINT           the launcher has got a signal
//	notice says=text             a notice says that this host is to leave the job
//	cut                          the launcher that leads the job is gone
//	hangup                       the output has lost its reader
//	stop                         whoever decides ends the job
//	collected [about=1]          the reports have come; the first was about this rank
//	tick                         time has passed
//	end                          all are gone: what is said last, and the exit code
//
// To accept the present output: go test ./internal/launch/ending -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *State
		var now time.Time
		start := time.Unix(1_000_000, 0)
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			if at, ok := seconds(t, d, "at"); ok {
				now = start.Add(at)
			}
			var b strings.Builder
			for _, a := range play(t, d, &s, &now, start) {
				fmt.Fprintln(&b, a)
			}
			if d.Cmd == "end" {
				fmt.Fprintln(&b, result(s))
				return b.String()
			}
			fmt.Fprintf(&b, "%v, %d left", s.Stage(), s.Left())
			if next, ok := s.Next(); ok {
				fmt.Fprintf(&b, ", next at %v", next.Sub(start))
			}
			b.WriteString("\n")
			return b.String()
		})
	})
}

func play(t *testing.T, d *transcript.Command, s **State, now *time.Time, start time.Time) []Action {
	switch d.Cmd {
	case "job":
		*now = start
		*s = New(Terms{Asked: 30 * time.Second, Terminated: 5 * time.Second, Killed: 12 * time.Second,
			Survives: d.HasArg("survives"), News: 200 * time.Millisecond})
		np := 0
		d.ScanArg(t, "np", &np)
		for i := range np {
			(*s).Started(i)
		}
	case "led":
		*now = start
		*s = New(Terms{Led: true, Asked: 30 * time.Second, Terminated: 13 * time.Second, Killed: 13 * time.Second})
		(*s).Started(0)
		for _, arg := range d.Args {
			for _, v := range arg.Vals {
				if sig := unix.SignalNum(v); arg.Key == "leaves" && sig != 0 {
					(*s).MayLeave(sig)
				}
			}
		}
	case "notice":
		says := ""
		d.ScanArg(t, "says", &says)
		return (*s).Leave(*now, says)
	case "cut":
		return (*s).Cut(*now)
	case "failed":
		return (*s).Failed(*now, failure(t, d, *now, start))
	case "gone":
		for _, arg := range d.Args {
			for _, v := range arg.Vals {
				if id, err := strconv.Atoi(v); arg.Key == "w" && err == nil {
					(*s).Gone(id)
				}
			}
		}
	case "unstartable":
		return (*s).CannotStart(*now)
	case "signal":
		name := ""
		d.ScanArg(t, "name", &name)
		return (*s).Interrupt(*now, unix.SignalNum(name))
	case "hangup":
		return (*s).HangUp(*now)
	case "stop":
		return (*s).Stop(*now)
	case "collected":
		if !d.HasArg("about") {
			return (*s).Collected(nil)
		}
		about := 0
		d.ScanArg(t, "about", &about)
		return (*s).Collected(&rendezvous.Failure{About: about})
	case "tick":
		return (*s).Tick(*now)
	case "end":
		return (*s).Conclude()
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return nil
}

func failure(t *testing.T, d *transcript.Command, now, start time.Time) Failure {
	f := Failure{Epoch: 1}
	d.ScanArg(t, "w", &f.Worker)
	f.Death = rendezvous.Death{Rank: f.Worker, Host: "a", PID: 100 + f.Worker, At: now}
	d.MaybeScanArg(t, "rank", &f.Death.Rank)
	d.MaybeScanArg(t, "code", &f.Death.ExitCode)
	d.MaybeScanArg(t, "signal", &f.Death.Signal)
	d.MaybeScanArg(t, "lost", &f.Death.Lost)
	epoch := 1
	d.MaybeScanArg(t, "epoch", &epoch)
	f.Epoch = uint64(epoch)
	if at, ok := seconds(t, d, "ended"); ok {
		f.Death.At = start.Add(at)
	}
	return f
}

func seconds(t *testing.T, d *transcript.Command, name string) (at time.Duration, ok bool) {
	text := ""
	d.MaybeScanArg(t, name, &text)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return time.Duration(n * float64(time.Second)), true
}

// result is how a job has ended, as its launcher sees it.
func result(s *State) string {
	over := "not over"
	if s.Over() {
		over = "over"
	}
	if f, ok := s.Root(); ok {
		return fmt.Sprintf("%s: root cause %v, exit code %d", over, f, Code(f.Death))
	}
	if sig := s.Interrupted(); sig != 0 {
		return fmt.Sprintf("%s: %s, exit code %d", over, Interruption(sig), SignalCode(sig))
	}
	return over + ": exit code 0"
}

// Root picks among failures alone, for jobs that survive some.
func TestRoot(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	f := func(rank, n int) Failure {
		d := rendezvous.Death{Rank: rank, Signal: int(syscall.SIGKILL), At: at(n)}
		return Failure{Worker: rank, Epoch: 1, Death: d}
	}
	for _, c := range []struct {
		name     string
		failures []Failure
		first    *rendezvous.Failure
		asked    time.Time
		want     int
	}{
		{"none", nil, nil, time.Time{}, -1},
		{"none, with a report", nil, &rendezvous.Failure{About: 1}, time.Time{}, -1},
		{"the first to end, not to arrive", []Failure{f(0, 3), f(1, 2), f(2, 4)}, nil, time.Time{}, 1},
		{"the reported one", []Failure{f(0, 3), f(1, 2), f(2, 4)}, &rendezvous.Failure{About: 2}, time.Time{}, 2},
		{"reported, and not here", []Failure{f(0, 3), f(1, 2)}, &rendezvous.Failure{About: 2}, time.Time{}, 1},
		{"after the signal", []Failure{f(0, 3), f(1, 5)}, &rendezvous.Failure{About: 1}, at(4), 0},
		{"all after the signal", []Failure{f(0, 6), f(1, 5)}, nil, at(4), 1},
	} {
		if got := Root(c.failures, c.first, c.asked); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
