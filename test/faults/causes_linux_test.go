package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cause runs a job of four ranks, in which rank 2 has a fault. Every other rank must get
// an error that match accepts within the bound, and the launcher must name the fault
// last. act, if not nil, is called with the victim's process when all ranks work.
func cause(t *testing.T, fault, match string, bound time.Duration, act func(pid int) error) {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	const victim = 2
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(dir, "gorovod"), "run", "-np", strconv.Itoa(ranks), "--verbose",
		filepath.Join(dir, "rank"))
	c.Env = append(os.Environ(), "HOROVOD_DYNAMIC_PROCESS_SETS=1", "FAULT_ROUNDS=100000", fmt.Sprintf("FAULT_RANK=%d",
		victim), "FAULT="+fault, fmt.Sprintf("GOROVOD_HEARTBEAT_SECONDS=%g", heartbeat.Seconds()))
	lines, end, err := start([]*exec.Cmd{c})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	o := &outcome{told: map[int]time.Time{}, done: map[int]bool{}}
	inj := injection{cell: cell{k: &kind{}}, victim: victim}
	started := regexp.MustCompile(fmt.Sprintf(`rank %d runs on \S+ with pid (\d+)`, victim))
	pid, working := 0, 0
	for o.fault.IsZero() || !o.complete(inj) {
		line, open := <-lines
		if !open {
			break
		}
		o.take(line)
		if m := started.FindStringSubmatch(line); m != nil {
			pid, _ = strconv.Atoi(m[1])
		}
		if strings.Contains(line, "SKIP ") {
			t.Skip(line)
		}
		if strings.HasSuffix(line, ":WORKING") {
			if working++; working == ranks && act != nil {
				o.fault = time.Now()
				if err := act(pid); err != nil {
					t.Skip(err)
				}
			}
		}
	}
	for r := range ranks {
		if r == victim {
			continue
		}
		if at, told := o.told[r]; !told {
			t.Fatalf("rank %d was not told:\n%s", r, strings.Join(o.all, "\n"))
		} else if took := at.Sub(o.fault); took > bound {
			t.Errorf("rank %d was told after %v, the bound is %v", r, took, bound)
		}
	}
	for _, text := range o.texts {
		if !regexp.MustCompile(`^rank 2 on host \S+ \(pid \d+\) `+match).MatchString(text) || !view.MatchString(text) ||
			text != o.texts[0] {
			t.Errorf("told %q", text)
		}
	}
}

// The kernel's OOM killer kills a rank whose cgroup has no memory left.
func TestOutOfMemory(t *testing.T) {
	const of = "/sys/fs/cgroup/memory"
	group := filepath.Join(of, fmt.Sprintf("gorovod-test-%d", os.Getpid()))
	procs, limit := "cgroup.procs", "memory.limit_in_bytes"
	if _, err := os.Stat(of); err != nil {
		group, limit = filepath.Join("/sys/fs/cgroup", filepath.Base(group)), "memory.max"
	}
	if err := os.Mkdir(group, 0o777); err != nil {
		t.Skipf("no cgroup for memory: %v", err)
	}
	t.Cleanup(func() {
		for range 100 { // until the killed process has left the cgroup
			if os.Remove(group) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	if err := os.WriteFile(filepath.Join(group, limit), []byte("268435456"), 0); err != nil {
		t.Skipf("no limit of memory: %v", err)
	}
	// The OOM killer needs a moment. The time counts from the end of the process.
	cause(t, "memory "+filepath.Join(group, procs), `was killed by signal 9 \(SIGKILL\)`, 5*time.Second, nil)
}

// Go's runtime ends a process that has no address space left (ulimit -v).
func TestNoAddressSpace(t *testing.T) {
	cause(t, "address space", `exited with code 2`, 5*time.Second, nil)
}

// A debugger stops all threads of a process.
func TestADebugger(t *testing.T) {
	cause(t, "", `is lost: .*its process is stopped by a debugger`, heartbeat+2*slack, func(pid int) error {
		failed := make(chan error)
		quit := make(chan struct{})
		t.Cleanup(func() { close(quit) })
		go func() {
			runtime.LockOSThread() // a thread traces, and its end lets the traced threads go on
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			for _, thread := range threads {
				if tid, _ := strconv.Atoi(filepath.Base(thread)); err == nil {
					err = unix.PtraceAttach(tid)
				}
			}
			failed <- err
			<-quit
		}()
		return <-failed
	})
}
