package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// probe is the compiled testdata/probe.c.
var probe struct {
	sync.Once
	folder, path string
	err          error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if probe.folder != "" {
		os.RemoveAll(probe.folder)
	}
	os.Exit(code)
}

func probePath(t *testing.T) string {
	t.Helper()
	probe.Do(func() {
		if probe.folder, probe.err = os.MkdirTemp("", "gpu"); probe.err != nil {
			return
		}
		probe.err = Build("standin", probe.folder, strings.Fields(os.Getenv("STANDIN_CFLAGS"))...)
		if probe.err != nil {
			return
		}
		probe.path = filepath.Join(probe.folder, "probe")
		probe.err = Compile(probe.path, append([]string{"testdata/probe.c", filepath.Join(probe.folder, "libnccl.so.2"),
			filepath.Join(probe.folder, "libcuda.so.1"), "-Wl,-rpath,$ORIGIN"},
			strings.Fields(os.Getenv("STANDIN_CFLAGS"))...)...)
	})
	if probe.err != nil {
		t.Fatal(probe.err)
	}
	return probe.path
}

type probeCase struct {
	name   string
	ranks  int
	report string // part of the report of at least one rank; empty: no rank reports or fails
	env    []string
}

// TestStandIn runs each case of testdata/probe.c, and expects the report for its mistake, if it makes one.
func TestStandIn(t *testing.T) {
	leaks := []string{"STANDIN_LEAKS=1"}
	for _, c := range []probeCase{
		{"order", 2, "", nil},
		{"no_ready_wait", 1, "race: a write of a kernel on stream", nil},
		{"no_done_wait", 1, "race: a write of ncclAllReduce on stream", nil},
		{"read_elsewhere", 1, "race: a write of a kernel on stream", nil},
		{"wait_before_record", 1, "race: a write of a kernel on stream", nil},
		{"record_before_operation", 1, "race: a write of ncclAllReduce on stream", nil},
		{"free_in_use", 1, "use of memory after it was freed", nil},
		{"record_in_progress", 1, "race:", nil},
		{"call_in_progress", 1, "ncclAllReduce: the communicator is still in progress", nil},
		{"reuse_buffer", 1, "32 bytes at", nil},
		{"reads_share", 1, "", nil},
		{"event_recorded_again", 1, "race: a write of a kernel on stream", nil},
		{"default_stream", 1, "race: a write of a kernel on stream", nil},
		{"pinned_reused", 1, "race: a write of cuMemcpyDtoHAsync", nil},
		{"touch", 1, "the CPU touches memory of device 0 at", nil},
		{"touch_freed", 1, "the CPU touches memory of a device that was freed", nil},
		{"beyond", 1, "cuMemsetD8Async: 101 bytes at", nil},
		{"not_device_memory", 1, "are no memory of a device", nil},
		{"freed_memory", 1, "use of memory after it was freed", nil},
		{"freed_event", 1, "cuEventQuery: use of event", nil},
		{"freed_stream", 1, "after cuStreamDestroy", nil},
		{"no_event", 1, "is no event", nil},
		{"leak_event", 1, "leak: 1 events", leaks},
		{"leak_stream", 1, "leak: 1 streams", leaks},
		{"leak_memory", 1, "leak: 10 bytes", leaks},
		{"leak_comm", 1, "leak: 1 communicators", leaks},
		{"group_left_open", 1, "leak: a thread has not ended its group", leaks},
		{"no_context", 1, "", nil},
		{"no_init", 1, "", nil},
		{"capturing", 1, "", nil},
		{"other_device", 1, "memory of device 0 on a stream of device 1", nil},
		{"forked", 1, "cuEventCreate is called in a forked child", nil},
		{"out_of_memory", 1, "", []string{"STANDIN_MEMORY=1500000"}},
		{"free_waits", 1, "", nil},
		{"differing_counts", 2, "the members differ in round 1", nil},
		{"differing_types", 2, "float32", nil},
		{"differing_ops", 2, "max, root 0", nil},
		{"differing_order", 2, "has ncclBroadcast of 4 x int32", nil},
		{"differing_roots", 2, "root 1", nil},
		{"differing_groups", 2, "calls in the group", nil},
		{"differing_messages", 2, "rank 1 receives 5 elements", nil},
		{"group_not_open", 1, "ncclGroupEnd without ncclGroupStart", nil},
		{"group_on_two_threads", 1, "ncclGroupEnd without ncclGroupStart on this thread", nil},
		{"shared_in_group", 1, "of one group use the same memory", nil},
		{"half_in_place", 1, "overlap, and are not in place", nil},
		{"bad_magic", 1, "the config's magic is 0x1", nil},
		{"bad_size", 1, "the config says 8 bytes", nil},
		{"bad_version", 1, "the config says version 0", nil},
		{"duplicate_device", 2, "", nil},
		{"same_rank", 2, "two members are rank 0", nil},
		{"after_abort", 1, "use of communicator", nil},
		{"after_destroy", 2, "after ncclCommDestroy", nil},
		{"after_finalize", 1, "after ncclCommFinalize", nil},
		{"destroy_in_progress", 1, "ncclCommDestroy: the communicator is still in progress", nil},
		{"freed_scale", 1, "has been destroyed", nil},
		{"abort_hanging", 2, "", nil},
		{"unordered_comms", 2, "race: groups of two communicators", nil},
		{"ordered_comms", 2, "", nil},
		{"abort_waits", 2, "", nil},
		{"abort_init", 1, "", nil},
		{"unbuffered_sends", 2, "", nil},
		{"arithmetic", 2, "", nil},
		{"collectives", 2, "", nil},
		{"split_and_shrink", 3, "", nil},
		{"blocking_world", 3, "", nil},
		{"fault_code", 1, "", []string{"STANDIN_FAULTS=cuEventCreate:2:999"}},
		{"fault_in_group", 1, "", []string{"STANDIN_FAULTS=ncclAllReduce:2:2"}},
		{"fault_stuck", 1, "", []string{"STANDIN_FAULTS=ncclAllReduce:1:stuck"}},
		{"fault_async", 1, "", []string{"STANDIN_FAULTS=cuEventCreate:7:1,ncclAllReduce:*:async=6"}},
		{"fault_hang", 1, "", []string{"STANDIN_FAULTS=ncclAllReduce:1:hang"}},
		{"fault_die", 1, "killed", []string{"STANDIN_FAULTS=cuEventCreate:1:die"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

// run runs a case on all its ranks. Once a rank has failed, run kills the others, because they may wait for it.
func (c *probeCase) run(t *testing.T) {
	path, folder := probePath(t), t.TempDir()
	said := filepath.Join(folder, "report")
	var commands []*exec.Cmd
	var outputs []*strings.Builder
	for rank := range c.ranks {
		command := exec.Command(path, c.name, fmt.Sprint(rank), fmt.Sprint(c.ranks))
		command.Env = append(os.Environ(), append(c.env, "STANDIN_MEETING="+folder, "STANDIN_REPORT="+said,
			fmt.Sprintf("STANDIN_SEED=%d", rank+1))...)
		out := &strings.Builder{}
		command.Stdout, command.Stderr = out, out
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		commands, outputs = append(commands, command), append(outputs, out)
	}
	ended := make(chan error, c.ranks)
	for _, command := range commands {
		go func() { ended <- command.Wait() }()
	}
	deadline := time.After(30 * time.Second)
	failed, late := false, false
	for left := c.ranks; left > 0; {
		select {
		case err := <-ended:
			left--
			failed = failed || err != nil
		case <-deadline:
			late, deadline = true, nil
		}
		if failed || late {
			for _, command := range commands {
				_ = command.Process.Kill() // it may have ended
			}
		}
	}
	c.judge(t, said, commands, outputs, failed, late)
}

func (c *probeCase) judge(t *testing.T, said string, commands []*exec.Cmd, outputs []*strings.Builder,
	failed, late bool) {
	text, err := os.ReadFile(said)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	all := string(text)
	for _, o := range outputs {
		all += o.String()
	}
	switch {
	case late:
		t.Fatalf("the ranks do not end\n%s", all)
	case c.report == "" && (failed || len(text) > 0):
		t.Fatalf("a rank has failed\n%s", all)
	case c.report == "killed":
		if s := commands[0].ProcessState; s == nil || s.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the rank was not killed\n%s", all)
		}
	case c.report != "" && !strings.Contains(string(text), c.report):
		t.Fatalf("no report of %q\n%s", c.report, all)
	}
}
