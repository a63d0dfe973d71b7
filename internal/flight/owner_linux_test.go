package flight

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// askVariable makes the test binary one that asks that process.
const askVariable = "GOROVOD_FLIGHT_TEST_ASK"

func TestMain(m *testing.M) {
	if pid, err := strconv.Atoi(os.Getenv(askVariable)); err == nil {
		_, _, err := Ask(pid)
		io.WriteString(os.Stdout, errors.Join(err, errors.New("")).Error())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Another user than that of the ranks is told whose they are, and who may ask.
func TestRanksOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to be another user needs root")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "gorovod-flight") // that others can enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ask")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		Serve(l, func() *Dump { return &Dump{Job: "j", Size: 1, PID: os.Getpid(), Time: time.Now()} })
		close(served)
	}()
	defer func() { l.Close(); <-served }()
	c := exec.Command(program)
	c.Dir, c.Env = "/", []string{askVariable + "=" + strconv.Itoa(os.Getpid())}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said, err := c.CombinedOutput()
	if text := string(said); err != nil || !strings.Contains(text, "belongs to user ") ||
		!strings.Contains(text, "sudo") {
		t.Errorf("%v: %s", err, text)
	}
}
