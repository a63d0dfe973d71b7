package launch

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// supervisors lists the supervisors of the job, once until has returned.
func (l *launcher) supervisors() (pids []int) {
	for _, p := range l.marked() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		if bytes.HasPrefix(line, []byte(spawn.SupervisorName+"\x00")) {
			pids = append(pids, p)
		}
	}
	return pids
}

func TestDeathOfASupervisorLeavesNobody(t *testing.T) {
	for _, script := range []string{tree, "setsid sleep 300 & echo ready; exec sleep 301"} {
		l := launched(t, nil, "-np", "2", "--grace-period", "0", "bash", "-c", script)
		l.until("ready", 2)
		victims := l.supervisors()
		if len(victims) != 2 {
			t.Fatalf("%d supervisors", len(victims))
		}
		syscall.Kill(victims[0], syscall.SIGKILL)
		l.Wait()
		if left := l.marked(); len(left) > 0 {
			t.Errorf("%d processes outlive the launcher", len(left))
		}
		if code := l.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d: %s", code, &l.stderr)
		}
	}
}

// If all supervisors die at once, each orphan still gets SIGTERM first.
func TestOrphansMayCleanUp(t *testing.T) {
	dir := t.TempDir()
	l := launched(t, nil, "-np", "2", "--grace-period", "0", "bash", "-c",
		`setsid bash -c 'trap "echo >$0/$$; exit" TERM; echo ready; while :; do sleep 0.01; done' `+dir+` & exec sleep 1000`)
	l.until("ready", 2)
	for _, p := range l.supervisors() {
		syscall.Kill(p, syscall.SIGKILL)
	}
	l.Wait()
	if done, _ := os.ReadDir(dir); len(done) != 2 {
		t.Errorf("%d of 2 have cleaned up: %s", len(done), &l.stderr)
	}
}

// A launcher may have become one by exec and have older children. They are not the job's.
func TestStrangersAreLeftAlone(t *testing.T) {
	bash, err := exec.LookPath("bash") // exec -a is not in every sh
	if err != nil {
		t.Fatal(err)
	}
	l := launched(t, nil, "-np", "1", "--grace-period", "0", "sh", "-c",
		"setsid sleep 1000 & echo ready; exec sleep 1000")
	l.Args = append([]string{"bash", "-c",
		`(echo outer $BASHPID; sleep 1000 & echo inner $!; wait) 2>/dev/null & exec -a horovodrun "$0" "$@"`, l.Path},
		l.Args[1:]...)
	l.Path = bash
	l.Stdout = nil
	out, err := l.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	var outer, inner int
	var text []byte
	for b := make([]byte, 1000); inner == 0 || !bytes.Contains(text, []byte("ready\n")); {
		n, err := out.Read(b)
		if err != nil {
			t.Fatalf("%s%s", text, &l.stderr)
		}
		text = append(text, b[:n]...)
		if i := bytes.Index(text, []byte("outer ")); i >= 0 {
			fmt.Sscanf(string(text[i:]), "outer %d", &outer)
		}
		if i := bytes.Index(text, []byte("inner ")); i >= 0 && bytes.IndexByte(text[i:], '\n') > 0 {
			fmt.Sscanf(string(text[i:]), "inner %d", &inner)
		}
	}
	defer syscall.Kill(inner, syscall.SIGKILL)
	syscall.Kill(outer, syscall.SIGKILL) // makes the inner one the launcher's child
	syscall.Kill(l.supervisors()[0], syscall.SIGKILL)
	l.Wait()
	if left := l.marked(); len(left) != 1 || left[0] != inner {
		t.Errorf("%v are left, %d is the stranger: %s", left, inner, &l.stderr)
	}
}

// Files of PyTorch's workers in shared memory are removed, however the job ends; files of other programs stay.
func TestSharedMemoryOfTheDeadIsRemoved(t *testing.T) {
	const sharedDir = "/dev/shm"
	const file = sharedDir + "/torch_$$_${TAG}"
	const script = `: >` + file + `_1; : >` + file + `_old; touch -d "1 hour ago" ` + file + `_old
		for setsid in "" setsid; do $setsid sh -c ': >` + file + `_1; : >` + file + `_2; echo ready; exec sleep 1000' & done
		read wait <$GATE
		case $HOW in exit) exit 0;; kill) kill -9 $$;; esac; exec sleep 1000`
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"exit", "kill", "INT", "TERM", "launcher", "supervisor"} {
		tag := rand.Text()
		gate := filepath.Join(t.TempDir(), "gate")
		if err := syscall.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		named := sharedDir + "/torch_*_" + tag + "_*"
		t.Cleanup(func() { // also if the test fails
			names, _ := filepath.Glob(named)
			for _, name := range names {
				os.Remove(name)
			}
		})
		others := map[string]bool{}
		for _, pid := range []int{os.Getpid(), gone.Process.Pid} {
			name := fmt.Sprintf("%s/torch_%d_%s_1", sharedDir, pid, tag)
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			others[name] = true
		}
		l := launched(t, []string{"TAG=" + tag, "HOW=" + how, "GATE=" + gate}, "-np", "2", "--grace-period", "0", "sh",
			"-c", script)
		l.until("ready", 4)
		g, err := os.OpenFile(gate, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		g.WriteString("\n\n") // separates the ranks' lines
		switch how {
		case "INT":
			l.Process.Signal(syscall.SIGINT)
		case "TERM":
			l.Process.Signal(syscall.SIGTERM)
		case "launcher":
			l.Process.Kill()
		case "supervisor":
			for _, p := range l.supervisors() {
				syscall.Kill(p, syscall.SIGKILL)
			}
		}
		l.Wait()
		l.nobodyLeft()
		names, _ := filepath.Glob(named)
		for _, name := range names {
			if old := strings.HasSuffix(name, "_old"); !old && !others[name] {
				t.Errorf("%s: %s is left", how, name)
			}
			delete(others, name)
		}
		for name := range others {
			t.Errorf("%s: %s, which is another's, was removed", how, name)
		}
		if olds := strings.Count(strings.Join(names, "\n"), "_old"); olds != 2 {
			t.Errorf("%s: %d of 2 files that are older than the job are left", how, olds)
		}
	}
}

func full(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLostOutputIsToldAndCounts(t *testing.T) {
	const says = "horovodrun: output is lost: write /dev/std"
	l := launched(t, nil, "-np", "2", "sh", "-c", "echo hi; sleep 0.05; echo again")
	l.Stdout = full(t)
	l.expect(1, says+"out: no space left on device\n")
	if n := strings.Count(l.stderr.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, &l.stderr)
	}

	l = launched(t, nil, "-np", "2", "sh", "-c", "echo trouble >&2; echo hi")
	l.Stderr = full(t)
	l.expect(1)
	if out := l.stdout.String(); strings.Count(out, says+"err: no space left on device\n") != 1 ||
		strings.Count(out, ">:hi\n") != 2 {
		t.Errorf("stdout: %s", out)
	}

	l = launched(t, nil, "-np", "2", "sh", "-c", "echo hi; exit 3")
	l.Stdout = full(t)
	l.expect(3, says)

	dir := t.TempDir()
	os.Mkdir(dir+"/rank.0", 0o700)
	os.Symlink("/dev/full", dir+"/rank.0/stdout")
	l = launched(t, nil, "-np", "1", "--output-filename", dir, "echo", "hi")
	l.expect(1, "horovodrun: output is lost: write "+dir+"/rank.0/stdout: no space left on device\n")
	if l.stdout.String() != "[0]<stdout>:hi\n" {
		t.Errorf("stdout: %s", &l.stdout)
	}

	l = launched(t, nil, "--version")
	l.Stdout = full(t)
	l.expect(1, "no space left on device")
}

// If the reader of the output is gone, as under head, the job ends quietly and leaves no process.
func TestClosedPipeEndsTheJob(t *testing.T) {
	for _, c := range []struct{ script, first string }{
		{`echo hi; exit 0`, ""},
		{`echo ready; while :; do echo more; echo more >&2; sleep 0.02; done`, "ready"},
		{`trap "" TERM; echo ready; while :; do echo more; sleep 0.02; done`, "ready"},
	} {
		l := launched(t, nil, "-np", "2", "sh", "-c", c.script)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		l.Stdout = w
		if c.first == "" {
			r.Close()
		}
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if c.first != "" {
			var text []byte
			for b := make([]byte, 100); !bytes.Contains(text, []byte(c.first)); {
				n, err := r.Read(b)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, b[:n]...)
			}
			r.Close()
		}
		stop := time.AfterFunc(30*time.Second, func() { l.Process.Kill() })
		if err := l.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		stop.Stop()
		if code := l.ProcessState.ExitCode(); code != 141 || strings.Contains(l.stderr.String(), "horovodrun:") {
			t.Errorf("%s: exit code %d: %s", c.script, code, &l.stderr)
		}
		if left := l.marked(); len(left) > 0 {
			t.Errorf("%s: %d processes outlive the launcher", c.script, len(left))
		}
	}
}

func TestASignalUnderAShellIsNamed(t *testing.T) {
	l := launched(t, nil, "-np", "2", "--grace-period", "0", "bash", "-c",
		`if [ $HOROVOD_RANK = 1 ]; then bash -c 'kill -9 $$'; exit $?; fi; exec sleep 1000`)
	l.expect(137, "horovodrun: root cause: rank 1 on host localhost (pid ", ") exited with code 137 (128+9: SIGKILL)")
	if strings.Contains(l.stderr.String(), "hvd.init()") {
		t.Errorf("a command that does not use Horovod is told of it: %s", &l.stderr)
	}
}

func TestScriptsWhoseInterpreterIsMissing(t *testing.T) {
	dir := t.TempDir()
	for name, line := range map[string]string{
		"missing": "#!/no/such/interpreter -x", "blank": "#! \t/no/such/interpreter", "windows": "#!/bin/sh\r",
		"directory": "#!/bin", "data": "#!" + dir + "/plain",
		"good": "#!/bin/sh", "empty": "#!",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line+"\necho fine\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(dir+"/plain", []byte("echo fine\n"), 0o644)
	const named = ": the interpreter that its first line names, "
	for name, c := range map[string]struct {
		code int
		says string
	}{
		"missing": {127, `"/no/such/interpreter", is not there`},
		"blank":   {127, `"/no/such/interpreter", is not there`},
		"windows": {127, `"/bin/sh\r", is not there`}, "directory": {126, `"/bin", cannot be executed`},
		"data": {126, strconv.Quote(dir+"/plain") + `, cannot be executed`},
	} {
		l := launched(t, nil, "-np", "2", dir+"/"+name)
		l.expect(c.code, "horovodrun: "+dir+"/"+name+named+c.says+"\n")
	}
	launched(t, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, "-np", "1", "missing").expect(127,
		dir+"/missing"+named)
	launched(t, nil, "-np", "1", dir+"/good").expect(0)
	launched(t, nil, "-np", "1", dir+"/empty").expect(0)
}
