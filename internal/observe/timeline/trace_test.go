package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// memTrace is a trace into memory. Its writer does not run yet.
func memTrace(t *testing.T, queueSize int) (*trace, *memFile) {
	t.Helper()
	f := &memFile{}
	tr, err := newTrace(f, queueSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr, f
}

// finished ends a trace and parses its file.
func finished(t *testing.T, tr *trace, f *memFile) []record {
	t.Helper()
	go tr.run()
	if err := tr.stop(); err != nil {
		t.Fatal(err)
	}
	var records []record
	if err := json.Unmarshal(f.data, &records); err != nil {
		t.Fatal(err)
	}
	checkNested(t, records)
	return records
}

// told is the number of dropped events in the last record that has it.
func told(records []record) (n int64) {
	for _, r := range records {
		if r["name"] == "process_labels" {
			n = int64(r["args"].(map[string]any)["dropped"].(float64))
		}
	}
	return n
}

// TestOverflowIsCounted puts more events than the queue holds while the writer does not run. The events in the file and
// the counted ones must be all events.
func TestOverflowIsCounted(t *testing.T) {
	const size, ops = 64, 100
	tr, f := memTrace(t, size)
	for i := range ops {
		name := fmt.Sprint("tensor ", i%3)
		tr.put(opStart, name, "ALLREDUCE", 0)
		tr.putEnd(name, tensor.Float32, nil)
	}
	dropped := tr.dropped.Load()
	if dropped != 2*ops-size {
		t.Errorf("%d dropped, want %d", dropped, 2*ops-size)
	}
	records := finished(t, tr, f)
	if n := told(records); n != dropped {
		t.Errorf("the file tells of %d dropped, want %d", n, dropped)
	}
	begun, ended := 0, 0
	for _, r := range records {
		switch r["ph"] {
		case "B":
			begun++
		case "E":
			ended++
		}
	}
	if want := size * 7 / 8 / 2; begun != want || ended != want {
		t.Errorf("%d operations begun and %d ended, want %d", begun, ended, want)
	}
}

// TestOverflowWhileWriting does the same while the writer runs.
func TestOverflowWhileWriting(t *testing.T) {
	tr, f := memTrace(t, 64)
	go tr.run()
	ops := 0
	for ; tr.dropped.Load() == 0 || ops < 5000; ops++ {
		tr.put(opStart, "a", "ALLREDUCE", 0)
		tr.put(activityStart, "a", GlooAllreduce, 0)
		tr.put(activityEnd, "a", "", 0)
		tr.putEnd("a", tensor.Float32, nil)
	}
	if err := tr.stop(); err != nil {
		t.Fatal(err)
	}
	var records []record
	if err := json.Unmarshal(f.data, &records); err != nil {
		t.Fatal(err)
	}
	checkNested(t, records)
	if n := told(records); n != tr.dropped.Load() {
		t.Errorf("the file tells of %d dropped, want %d", n, tr.dropped.Load())
	}
}

// TestDrainedQueueTakesStartsAgain: producers must notice that there is room again.
func TestDrainedQueueTakesStartsAgain(t *testing.T) {
	const size = 64
	tr, f := memTrace(t, size)
	for range 10 {
		for range size / 4 {
			tr.put(opStart, "a", "ALLREDUCE", 0)
			tr.putEnd("a", tensor.Float32, nil)
		}
		tr.drain()
	}
	if n := tr.dropped.Load(); n != 0 {
		t.Errorf("%d dropped", n)
	}
	finished(t, tr, f)
}

// TestCrowdIsFreedAfterLosses: the end of x is dropped while x has the shared track; afterwards y can have the track.
// Events that were left out before count as dropped.
func TestCrowdIsFreedAfterLosses(t *testing.T) {
	const size = 8
	tr, f := memTrace(t, size)
	tr.rec.limit = 0
	tr.put(opStart, "x", "ALLREDUCE", 0)
	tr.put(opStart, "y", "BROADCAST", 0)
	tr.drain()
	if n := tr.dropped.Load(); n != 1 || tr.told != 1 {
		t.Errorf("%d dropped and %d told, want the start of y", n, tr.told)
	}
	for range size {
		tr.put(cycleStart, "", "", 0)
	}
	tr.putEnd("x", tensor.Float32, nil)
	tr.drain()
	tr.put(opStart, "y", "ALLGATHER", 0)
	tr.putEnd("y", tensor.Float32, nil)
	records := finished(t, tr, f)
	var ops []any
	for _, r := range records {
		if r["ph"] == "B" {
			ops = append(ops, r["name"])
		}
	}
	if got := fmt.Sprint(ops); got != "[ALLREDUCE ALLGATHER]" || told(records) != 2 {
		t.Errorf("operations %s, %d told as dropped", got, told(records))
	}
}

// TestWriterSeesAnEventBeforeItSleeps: an event that is queued between the last drain and sleep wakes no writer, so
// sleep must see it.
func TestWriterSeesAnEventBeforeItSleeps(t *testing.T) {
	tr, f := memTrace(t, 64)
	tr.put(opStart, "a", "ALLREDUCE", 0)
	awake := make(chan bool)
	go func() { awake <- tr.sleep() }()
	select {
	case <-awake:
	case <-time.After(10 * time.Second):
		t.Error("it sleeps")
		tr.wake <- struct{}{}
		<-awake
	}
	if tr.idle.Load() {
		t.Error("idle although awake")
	}
	finished(t, tr, f)
}

// TestStopDoesNotWaitForeverForAProducer leaves an event claimed and not published, like a thread that never runs
// again.
func TestStopDoesNotWaitForeverForAProducer(t *testing.T) {
	tr, f := memTrace(t, 64)
	tr.put(opStart, "a", "ALLREDUCE", 0)
	tr.queue.claim(opEnd)
	tr.put(opStart, "b", "ALLREDUCE", 0)
	records := finished(t, tr, f)
	if n := told(records); n != 2 {
		t.Errorf("%d events given up, want 2", n)
	}
	if m := names(records); len(m) != 1 || m[1] != "a" {
		t.Errorf("tensors %v", m)
	}
}

// TestPanicOfTheWriter must end the trace, not the process.
func TestPanicOfTheWriter(t *testing.T) {
	tr, f := memTrace(t, 64)
	off := false
	tr.off = func() { off = true }
	f.seen = func([]byte) { panic("of the test") }
	tr.put(opStart, "a", "ALLREDUCE", 0)
	go tr.run()
	if err := tr.stop(); err == nil || !strings.Contains(err.Error(), "of the test") {
		t.Errorf("error %v", err)
	}
	if !off || !f.closed {
		t.Errorf("off %v, file closed %v", off, f.closed)
	}
}

// TestALossIsTold lets the disk become full while the timeline is on, and while it is stopped. The loss is told once,
// when it happens, and Close says only what has not been told.
func TestALossIsTold(t *testing.T) {
	for _, early := range []bool{true, false} {
		f := &memFile{limit: 2 * minGrowth}
		tr, err := newTrace(f, 4096, nil)
		if err != nil {
			t.Fatal(err)
		}
		tl := New()
		told := make(chan error, 10)
		tr.lost = func(err error) { told <- err }
		tl.last.Store(tr)
		for i := range 2000 {
			tr.put(opStart, fmt.Sprint("tensor ", i), "ALLREDUCE", 0)
		}
		if early {
			go tr.run()
			select {
			case err := <-told:
				if !errors.Is(err, errDiskFull) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the loss is not told")
			}
			if err := tl.Close(); err != nil {
				t.Errorf("told again: %v", err)
			}
		} else {
			tr.finish()
			close(tr.done)
			if err := tl.Close(); !errors.Is(err, errDiskFull) {
				t.Errorf("closed with %v", err)
			}
		}
		if len(told) > 0 {
			t.Errorf("told once more: %v", <-told)
		}
	}
}
