package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A rank of a contender that rests is stopped but for its turns, and ends by itself when the run is over.
func TestRanksRest(t *testing.T) {
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := newContender(dir, "s", "", 1, modeAllreduce)
	if err != nil {
		t.Fatal(err)
	}
	c.rests = true
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "rank", "a", log, "7", "1000", c.socket(), "1")
	if err := c.start(cmd, nil); err != nil {
		t.Fatal(err)
	}
	defer c.end()
	if err := c.greet(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for state(t, cmd.Process.Pid) != "T" {
			time.Sleep(time.Millisecond)
		}
		times, err := c.do(t.Context(), &task{"4 B", modeAllreduce, []int{1}, 1}, 2)
		if err != nil || len(times) != 2 || times[0] != 7e-9 {
			t.Fatalf("%v, %v", times, err)
		}
	}
	c.end()
	if s := cmd.ProcessState; s == nil || s.ExitCode() != 0 {
		t.Errorf("the rank ended with %v", s)
	}
}

// state is a process's: T if it is stopped.
func state(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}
