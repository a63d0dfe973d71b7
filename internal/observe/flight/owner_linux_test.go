package flight

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// askVariable makes the test binary a program that asks that process.
const askVariable = "GOROVOD_FLIGHT_TEST_ASK"

// deceiveVariable makes the test binary a program that opens many sockets under the numbers of other processes, and
// never answers there.
const deceiveVariable = "GOROVOD_FLIGHT_TEST_DECEIVE"

// deceitful is how many sockets that program has.
const deceitful = 200

func TestMain(m *testing.M) {
	if pid := os.Getenv(deceiveVariable); pid != "" {
		for i := range deceitful {
			name := fmt.Sprintf("@%s%s/%d", prefix, pid, i)
			if _, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}); err != nil {
				panic(err)
			}
		}
		os.Stdout.Close()
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if pid, err := strconv.Atoi(os.Getenv(askVariable)); err == nil {
		_, _, err := Ask(pid)
		io.WriteString(os.Stdout, errors.Join(err, errors.New("")).Error())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// asOther is a command that runs this program as another user.
func asOther(t *testing.T, variable, value string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("to be another user needs root")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "gorovod-flight") // a directory that others can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Dir, c.Env = "/", []string{variable + "=" + value}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return c
}

// serveDump lets this process answer as a rank of job "j", until the test ends.
func serveDump(t *testing.T) {
	t.Helper()
	serve(t, func() *Dump { return &Dump{Job: "j", Size: 1, PID: os.Getpid(), Time: time.Now()} })
}

// serve lets this process answer with a dump, until the test ends.
func serve(t *testing.T, dump func() *Dump) {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		Serve(l, dump)
		close(served)
	}()
	t.Cleanup(func() { l.Close(); <-served })
}

// Another user's processes cannot make root read without end.
func TestAnswersOfOneUserAreBounded(t *testing.T) {
	var u users
	const most, each = 10000, 4000
	u.left.Store(most)
	for range 5 {
		here, there := net.Pipe()
		go func() {
			(&Dump{Job: strings.Repeat("x", each), Size: 1}).Write(there)
			there.Close()
		}()
		u.add(1, here)
	}
	u.ask()
	read, long := 0, 0
	for i, d := range u.dumps {
		if d != nil {
			read++
		}
		if u.long[i] {
			long++
		}
	}
	if read > most/each || read+long != 5 {
		t.Errorf("%d answers are read, and %d are too long", read, long)
	}
}

// Another user hears which user owns the ranks, and who may ask them.
func TestRanksOfAnotherUser(t *testing.T) {
	c := asOther(t, askVariable, strconv.Itoa(os.Getpid()))
	serveDump(t)
	said, err := c.CombinedOutput()
	if text := string(said); err != nil || !strings.Contains(text, "belongs to user ") ||
		!strings.Contains(text, "sudo") {
		t.Errorf("%v: %s", err, text)
	}
}

// Sockets of another user that pretend to be this process's neither hide this process nor delay root.
func TestAnotherUserDeceivesNobody(t *testing.T) {
	c := asOther(t, deceiveVariable, strconv.Itoa(os.Getpid()))
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); c.Wait() }()
	io.Copy(io.Discard, out) // it is ready now
	serveDump(t)
	began := time.Now()
	all, answers, _, err := askAll()
	if spent := time.Since(began); err != nil || spent > deceitful*patience/4 {
		t.Errorf("%v, after %v", err, spent)
	}
	if me := os.Getpid(); len(all["j"]) != 1 || all["j"][0].PID != me || len(answers[me]) != 1 {
		t.Errorf("this process answers %v of %v", answers[me], answers)
	}
	if its, asked := answers[c.Process.Pid]; !asked || len(its) > 0 {
		t.Errorf("the other user's process is known by %v", its)
	}
}
