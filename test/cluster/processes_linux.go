package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Children lists the child processes of pid.
func Children(pid int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		// The parent is the second field after the name, which is in parentheses.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		p, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			pids = append(append(pids, p), Children(p)...)
		}
	}
	return pids
}

// Marked lists the processes with mark in their environment and what in their
// command line.
func Marked(mark, what string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !bytes.Contains(env, []byte(mark)) {
			continue
		}
		line, _ := os.ReadFile(d + "/cmdline")
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil && strings.Contains(strings.ReplaceAll(string(line),
			"\x00", " "), what) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// NobodyLeft waits until no process with mark is left, at most patience. Then it kills
// each process that is left, and the test fails.
func NobodyLeft(t testing.TB, mark string, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := Marked(mark, "")
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, p := range left {
				line, _ := os.ReadFile("/proc/" + strconv.Itoa(p) + "/cmdline")
				t.Errorf("process %d is left: %q", p, line)
				syscall.Kill(p, syscall.SIGKILL)
			}
			return
		}
	}
}
