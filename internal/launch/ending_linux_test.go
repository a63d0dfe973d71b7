package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/spawn"
	"golang.org/x/sys/unix"
)

// eventually waits until is() holds. Its limit suits slow machines.
func (l *launcher) eventually(what string, is func() bool) {
	l.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("it does not happen that %s: %s%s", what, &l.stdout, &l.stderr)
		}
	}
}

// unread returns the writing end of a pipe that nobody reads.
func unread(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return w
}

// waitCode waits for the launcher's end.
func (l *launcher) waitCode() int {
	l.t.Helper()
	late := time.AfterFunc(30*time.Second, func() { l.Process.Kill() })
	defer late.Stop()
	if err := l.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		l.t.Fatal(err)
	}
	return l.ProcessState.ExitCode() // -1 if it had to be killed
}

// A reader that does not read the launcher's output does not keep a job from ending, and the launcher says nothing
// false about processes that have ended.
func TestOutputThatNobodyReads(t *testing.T) {
	ssh := remotely(t)
	for name, c := range map[string]struct {
		args    []string
		both    bool // stdout and stderr
		signals []syscall.Signal
		code    int
	}{
		"here":        {nil, false, []syscall.Signal{syscall.SIGTERM}, 143},
		"SIGHUP":      {nil, true, []syscall.Signal{syscall.SIGHUP}, 129},
		"SIGQUIT":     {nil, true, []syscall.Signal{syscall.SIGQUIT}, 131},
		"twice":       {nil, true, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 130},
		"other hosts": {[]string{"-H", "localhost:1,far.invalid:1"}, false, []syscall.Signal{syscall.SIGTERM}, 143},
		"elastic":     {[]string{"--min-np", "1"}, false, []syscall.Signal{syscall.SIGTERM}, 143},
		"elastic, far": {[]string{"--min-np", "1", "-H", "localhost:1,far.invalid:1"}, true,
			[]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 130},
	} {
		t.Run(name, func(t *testing.T) {
			if signal.Ignored(c.signals[0]) {
				t.Skipf("%v is ignored here, as under nohup", c.signals[0])
			}
			t.Parallel()
			dir := t.TempDir()
			args := append([]string{"-np", "2"}, c.args...)
			l := launched(t, []string{ssh, "DIR=" + dir}, append(args, "sh", "-c", `: >$DIR/$$; yes; yes >&2`)...)
			l.Stdout = unread(t)
			if c.both {
				l.Stderr = l.Stdout
			}
			if err := l.Start(); err != nil {
				t.Fatal(err)
			}
			l.eventually("both ranks print", func() bool {
				begun, _ := os.ReadDir(dir)
				return len(begun) == 2
			})
			for _, s := range c.signals {
				l.Process.Signal(s)
			}
			if code := l.waitCode(); code != c.code && !(len(c.signals) > 1 && code == 128+int(c.signals[1])) {
				t.Errorf("exit code %d: %s", code, &l.stderr)
			}
			if strings.Contains(l.stderr.String(), "left behind") {
				t.Errorf("it says %s", &l.stderr)
			}
		})
	}
}

// The files of --output-filename have everything that the ranks have written, also text that a reader has not taken.
// The job's last message says so.
func TestFilesHaveWhatNobodyReads(t *testing.T) {
	dir := t.TempDir()
	l := launched(t, []string{"DIR=" + dir}, "-np", "2", "--output-filename", dir, "sh", "-c",
		`pad=$(printf %1000s); while :; do i=$((i+1)); echo "$pad$i"; echo $i >$DIR/count.$HOROVOD_RANK; done`)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) // nobody can enlarge it
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	l.Stdout = os.NewFile(uintptr(ends[1]), "socket")
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	number := func(name string) int {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		last := strings.TrimSuffix(string(text), "\n")
		n, _ := strconv.Atoi(strings.TrimSpace(last[strings.LastIndexByte(last, '\n')+1:]))
		return n
	}
	still, before := 0, 0
	l.eventually("the ranks cannot go on", func() bool {
		time.Sleep(50 * time.Millisecond)
		now := number("count.0") + number("count.1")
		if now != before || now == 0 {
			still, before = 0, now
		}
		still++
		return still > 4
	})
	l.Process.Signal(syscall.SIGTERM)
	if code := l.waitCode(); code != 143 || !strings.Contains(l.stderr.String(),
		"horovodrun: output is lost: stdout: nobody reads it\n") {
		t.Errorf("exit code %d: %s", code, &l.stderr)
	}
	for rank := range 2 {
		written, kept := number(fmt.Sprintf("count.%d", rank)), number(fmt.Sprintf("rank.%d/stdout", rank))
		if kept < written {
			t.Errorf("rank %d has written %d lines, the file has %d", rank, written, kept)
		}
	}
}

// A job that ends by itself leaves the rest of its output in the pipe, for a pager's user to read later.
func TestAPagerHasTheRestOfTheOutput(t *testing.T) {
	l := launched(t, nil, "-np", "2", "sh", "-c", "seq 11000; echo the end; exit 5")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l.Stdout, l.Stderr = w, w
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	code := l.waitCode() // before anything is read
	read, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	text := string(read)
	if n := strings.Count(text, "\n"); code != 5 || n < 2*11001 || strings.Count(text, ">:the end\n") != 2 ||
		!strings.Contains(text, "root cause: rank ") {
		t.Errorf("exit code %d, %d lines, the end: %q", code, n, text[max(0, len(text)-500):])
	}
}

// Of three ranks, rank 1 reports that it has failed and takes its time to end, with code 3, while the
// others fail because of that, and end with code 9 at once.
func TestTheRootCauseDecides(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		dir := t.TempDir()
		l := launched(t, program("raises", "DIR="+dir), "-np", "3", self())
		l.until("ready", 3)
		if stopped {
			l.Process.Signal(syscall.SIGSTOP)
		}
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if stopped {
			l.eventually("all end", func() bool { return len(l.marked()) == 1 })
			l.Process.Signal(syscall.SIGCONT)
		}
		if code := l.waitCode(); code != 3 {
			t.Errorf("stopped %v: exit code %d", stopped, code)
		}
		said := regexp.MustCompile(
			`^(\[.*\n)*horovodrun: Process 1 exit with status code 3\..*\nhorovodrun: root cause: rank 1 raised an error`)
		if !said.MatchString(l.stderr.String()) {
			t.Errorf("stopped %v: %s", stopped, &l.stderr)
		}
	}
}

// If no rank reports a failure, the process that ended first is the cause, even if a stopped launcher hears of all ends
// at once.
func TestTheFirstToEndDecides(t *testing.T) {
	for _, hosts := range []string{"localhost:4", "localhost:2,far.invalid:2"} {
		dir := t.TempDir()
		l := launched(t, []string{remotely(t)}, "-np", "4", "-H", hosts, "sh", "-c",
			`echo $$ >$0/pid.$HOROVOD_RANK; echo ready; while [ ! -e $0/$HOROVOD_RANK ]; do sleep 0.01; done; exit 4$HOROVOD_RANK`, dir)
		l.until("ready", 4)
		l.Process.Signal(syscall.SIGSTOP)
		for _, rank := range []string{"2", "0", "3", "1"} {
			os.WriteFile(filepath.Join(dir, rank), nil, 0o600)
			text, _ := os.ReadFile(filepath.Join(dir, "pid."+rank))
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			l.eventually("rank "+rank+" ends", func() bool { return stat(pid) == 0 }) // its supervisor has noticed
		}
		l.Process.Signal(syscall.SIGCONT)
		if code := l.waitCode(); code != 42 || !strings.Contains(l.stderr.String(),
			"horovodrun: Process 2 exit with status code 42.") {
			t.Errorf("%s: exit code %d: %s", hosts, code, &l.stderr)
		}
	}
}

// stat is a process's state letter, as ps shows it.
func stat(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return text[strings.LastIndexByte(string(text), ')')+2]
}

// Stopped supervisors, agents and ranks, with the ranks' children, outlive neither the job nor a launcher that is
// killed.
func TestStoppedProcessesAreEnded(t *testing.T) {
	ssh := remotely(t)
	for _, hosts := range []string{"localhost:2", "localhost:1,far.invalid:1"} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(fmt.Sprint(hosts, " ", sig), func(t *testing.T) {
				t.Parallel()
				l := launched(t, []string{ssh}, "-np", "2", "-H", hosts, "--grace-period", "0.1", "bash", "-c", tree)
				l.until("ready", 2)
				all := spawn.Descendants(l.Process.Pid)
				for _, p := range all {
					syscall.Kill(p, syscall.SIGSTOP)
					l.eventually("it stops", func() bool { return strings.IndexByte("TZX\x00", stat(p)) >= 0 })
				}
				l.Process.Signal(sig)
				if code := l.waitCode(); sig == syscall.SIGTERM && code != 143 || strings.Contains(l.stderr.String(),
					"left behind") {
					t.Errorf("exit code %d: %s", code, &l.stderr)
				}
				l.nobodyLeft()
				l.eventually("agents end", func() bool {
					return !slices.ContainsFunc(all,
						func(p int) bool { return strings.IndexByte("Z\x00", stat(p)) < 0 })
				})
			})
		}
	}
}

// A stopped supervisor does not hide how its rank has ended: the launcher notices, and ends the supervisor. While the
// rank runs, the launcher leaves the supervisor alone.
func TestAStoppedSupervisorHidesNoEnd(t *testing.T) {
	ssh := remotely(t)
	for how, c := range map[string]struct {
		code int
		says string
	}{
		"exit 5":     {5, "exited with code 5"},
		"kill -9 $$": {137, "was killed by signal 9 (SIGKILL)"},
		"exit 0":     {9, ""},
	} {
		for _, host := range []string{"localhost", "far.invalid"} {
			t.Run(how+" on "+host, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				l := launched(t, []string{ssh, "HOW=" + how}, "-np", "3", "-H", host+":3", "--verbose", "sh", "-c",
					`echo $$ $PPID >$0/pid.$HOROVOD_RANK; echo ready; wait_for() { until [ -e $0/$1 ]; do sleep 0.01; done; }
					if [ $HOROVOD_RANK = 1 ]; then wait_for go; : >$0/runs; wait_for end; eval "$HOW"; fi; wait_for others; exit 9`, dir)
				log, err := os.Create(filepath.Join(dir, "log"))
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				l.Stderr = log
				says := func(what string) bool {
					text, err := os.ReadFile(log.Name())
					return err == nil && strings.Contains(string(text), what)
				}
				l.until("ready", 3)
				l.eventually("the launcher knows rank 1", func() bool { return says("rank 1 runs on ") })
				var pid, supervisor int
				text, _ := os.ReadFile(filepath.Join(dir, "pid.1"))
				if n, err := fmt.Sscan(string(text), &pid, &supervisor); n != 2 {
					t.Fatal(err)
				}
				touch := func(name string) { os.WriteFile(filepath.Join(dir, name), nil, 0o600) }
				syscall.Kill(supervisor, syscall.SIGSTOP)
				l.eventually("it stops", func() bool { return stat(supervisor) == 'T' })
				touch("go")
				l.eventually("rank 1 runs",
					func() bool { _, err := os.Stat(filepath.Join(dir, "runs")); return err == nil })
				if s := stat(supervisor); s != 'T' {
					t.Errorf("the supervisor of a rank that runs is in state %q", s)
				}
				touch("end")
				l.eventually("the supervisor is ended", func() bool { return stat(supervisor) == 0 })
				touch("others")
				if code := l.waitCode(); code != c.code {
					t.Errorf("exit code %d", code)
				}
				if c.says != "" && !says(fmt.Sprintf("root cause: rank 1 on host %s (pid %d) %s", host, pid, c.says)) {
					text, _ := os.ReadFile(log.Name())
					t.Errorf("it says %s", text)
				}
			})
		}
	}
}

// A supervisor that was stopped, and continues before its rank ends, reports the end as usual.
func TestASupervisorThatGoesOn(t *testing.T) {
	l := launched(t, nil, "-np", "2", "sh", "-c", `echo ready; sleep 0.5; exit 4$HOROVOD_RANK`)
	l.until("ready", 2)
	supervisors := l.supervisors()
	for _, p := range supervisors {
		syscall.Kill(p, syscall.SIGSTOP)
	}
	for _, p := range supervisors {
		l.eventually("it stops", func() bool { return stat(p) == 'T' })
		syscall.Kill(p, syscall.SIGCONT)
	}
	if code := l.waitCode(); code != 40 && code != 41 {
		t.Errorf("exit code %d: %s", code, &l.stderr)
	}
}

// A rank that ends with code 0 and did not leave is the cause if operations of other ranks fail because of it, and only
// then.
func TestAnEndWithCode0(t *testing.T) {
	for _, victims := range []string{"", "all"} {
		l := launched(t, program("vanishes", "VICTIMS="+victims), "-np", "3", self())
		code, said := l.code(), l.stderr.String()
		want := `^horovodrun: Process 2 exit with status code 9\..*\nhorovodrun: root cause: rank 2 on host localhost \(pid \d+\) exited with code 9\n$`
		if victims != "" {
			want = `^horovodrun: Process 2 exit with status code 9 because of rank 1\..*\nhorovodrun: root cause: rank 1 on host localhost \(pid \d+\) ` +
				`exited with code 0 while other ranks had operations to do \[seen by somebody\]\n$`
		}
		if code != 9 || !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("victims %q: exit code %d: %s", victims, code, said)
		}
	}
}

// The message names a rank that has left and does not end as the cause, beside the process whose exit code counts.
func TestACauseThatLivesOn(t *testing.T) {
	l := launched(t, program("lingers"), "-np", "3", "--grace-period", "0.3", self())
	code, said := l.code(), l.stderr.String()
	const want = "horovodrun: Process 2 exit with status code 9 because of rank 1.\nhorovodrun: root cause: rank 1 " +
		"has shut down while other ranks had operations to do\n"
	if code != 9 || said != want {
		t.Errorf("exit code %d: %s", code, said)
	}
}
