package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(victimEnv); path != "" {
		victim(path)
		return
	}
	leak.Main(m)
}

// record is one record of a file: its fields as JSON has them.
type record map[string]any

// load parses the file at path.
func load(t *testing.T, path string) []record {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var records []record
	if err := json.Unmarshal(b, &records); err != nil {
		t.Fatalf("%s is not valid: %v", path, err)
	}
	return records
}

// names are the tensors of a file by pid.
func names(records []record) map[float64]string {
	m := map[float64]string{}
	for _, r := range records {
		if args, ok := r["args"].(map[string]any); ok && r["ph"] == "M" && args["name"] != nil {
			m[r["pid"].(float64)] = args["name"].(string)
		}
	}
	return m
}

// checkNested fails unless B and E pair up on each track (except phases that are open at the end), times never decrease
// on a track, and each track is announced before its first record.
func checkNested(t interface{ Fatalf(string, ...any) }, records []record) {
	depth, last, known := map[float64]int{}, map[float64]float64{}, map[float64]bool{}
	for i, r := range records {
		if r["ph"] == "i" {
			continue
		}
		pid := r["pid"].(float64)
		if r["ph"] == "M" {
			known[pid] = true
			continue
		}
		if !known[pid] {
			t.Fatalf("record %d: pid %v has no name: %v", i, pid, r)
		}
		if ts := r["ts"].(float64); ts < last[pid] {
			t.Fatalf("record %d: pid %v goes back from %v µs: %v", i, pid, last[pid], r)
		} else {
			last[pid] = ts
		}
		switch r["ph"] {
		case "B":
			depth[pid]++
		case "E":
			depth[pid]--
		}
		if depth[pid] < 0 || depth[pid] > 2 {
			t.Fatalf("record %d: pid %v is %d deep: %v", i, pid, depth[pid], r)
		}
	}
}

// TestFileOfASmallJob checks each field of each record against Horovod's format.
func TestFileOfASmallJob(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	tl := New()
	before := time.Now()
	if err := tl.Start(path, true); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	recordSmallJob(tl)
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
	longest := float64(time.Since(before).Microseconds())
	if n := tl.Dropped(); n != 0 {
		t.Errorf("%d dropped", n)
	}

	got := load(t, path)
	checkNested(t, got)
	epoch := got[0]["args"].(map[string]any)["start_time_since_epoch_in_micros"].(float64)
	if int64(epoch) < before.UnixMicro() || int64(epoch) > after.UnixMicro() {
		t.Errorf("started at %v µs, want %v to %v", epoch, before.UnixMicro(), after.UnixMicro())
	}
	got[0]["args"] = nil
	for _, r := range got {
		if ts, ok := r["ts"].(float64); ok {
			if ts < 0 || ts > longest || ts != float64(int64(ts)) {
				t.Errorf("time %v µs of %v µs", ts, longest)
			}
			r["ts"] = "T"
		}
	}
	var want []record
	if err := json.Unmarshal([]byte(smallJob), &want); err != nil {
		t.Fatal(err)
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("record %d is missing: %v", i, want[i])
		case i >= len(want):
			t.Errorf("record %d is too many: %v", i, got[i])
		case !reflect.DeepEqual(got[i], want[i]):
			t.Errorf("record %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// recordSmallJob records an allreduce, a barrier and an allgather.
func recordSmallJob(tl *Timeline) {
	a, b := `layer "1"/weight`, "bärrier\n"
	tl.NegotiateStart(a, "ALLREDUCE")
	tl.RankReady(a, 0)
	tl.RankReady(a, 11)
	tl.NegotiateEnd(a, Agreement{Order: 7})
	tl.CycleStart()
	tl.OpStart(a, "ALLREDUCE")
	tl.ActivityStart(a, MemcpyInFusionBuffer)
	tl.ActivityEnd(a)
	tl.ActivityStart(a, GlooAllreduce)
	tl.ActivityEnd(a)
	tl.OpEnd(a, tensor.Float16, tensor.Shape{2, 3})
	tl.OpStart(b, "BARRIER")
	tl.OpEnd(b, tensor.NumDTypes, nil)
	tl.OpStart(a, "ALLGATHER")
	tl.OpEnd(a, tensor.Int64, tensor.Shape{})
}

// smallJob is the file of recordSmallJob; each T is a time.
const smallJob = `[
{"name":"process_name","ph":"M","pid":0,"args":null},
{"name":"process_sort_index","ph":"M","pid":0,"args":{"sort_index":0}},
{"name":"process_name","ph":"M","pid":1,"args":{"name":"layer \"1\"/weight"}},
{"name":"process_sort_index","ph":"M","pid":1,"args":{"sort_index":1}},
{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":"T","pid":1},
{"ph":"X","name":"0","ts":"T","pid":1,"dur":0},
{"ph":"X","name":"11","ts":"T","pid":1,"dur":0},
{"ph":"E","ts":"T","pid":1},
{"ph":"i","name":"CYCLE_START","ts":"T","s":"g"},
{"ph":"B","name":"ALLREDUCE","ts":"T","pid":1},
{"ph":"B","name":"MEMCPY_IN_FUSION_BUFFER","ts":"T","pid":1},
{"ph":"E","ts":"T","pid":1},
{"ph":"B","name":"GLOO_ALLREDUCE","ts":"T","pid":1},
{"ph":"E","ts":"T","pid":1},
{"ph":"E","ts":"T","pid":1,"args":{"dtype":"float16","shape":"[2, 3]"}},
{"name":"process_name","ph":"M","pid":2,"args":{"name":"bärrier\n"}},
{"name":"process_sort_index","ph":"M","pid":2,"args":{"sort_index":2}},
{"ph":"B","name":"BARRIER","ts":"T","pid":2},
{"ph":"E","ts":"T","pid":2},
{"ph":"B","name":"ALLGATHER","ts":"T","pid":1},
{"ph":"E","ts":"T","pid":1,"args":{"dtype":"int64","shape":"[]"}}
]`

// TestFileOfARank checks that the file has what merging needs, and nothing more.
func TestFileOfARank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	tl := New()
	tl.Identify(&Identity{Rank: 3, Size: 4, Host: "a\"b", Job: "j", Generation: 1<<20 + 1})
	if err := tl.Start(path, false); err != nil {
		t.Fatal(err)
	}
	tl.NegotiateStart("x", "ALLREDUCE")
	tl.RankReady("x", 0) // from a coordinator, which has submitted or will submit
	tl.RankReady("x", 1)
	tl.Submitted("x", 0)
	tl.NegotiateEnd("x", Agreement{Set: 5, Order: 1 << 40})
	tl.OpStart("x", "ALLREDUCE")
	tl.NegotiateStart("x", "ALLREDUCE") // another rank is ahead
	tl.RankReady("x", 0)
	tl.RankReady("x", 2)
	tl.OpEnd("x", tensor.Float32, nil)
	tl.Submitted("x", 0)
	tl.NegotiateEnd("x", Agreement{Set: 5, Order: 1<<40 + 1, Ahead: true})
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
	got := load(t, path)
	checkNested(t, got)
	own := got[2]["args"].(map[string]any)
	if got[2]["name"] != "gorovod_rank" || own["rank"] != 3.0 || own["size"] != 4.0 || own["host"] != "a\"b" ||
		own["job"] != "j" || own["generation"] != float64(1<<20+1) {
		t.Errorf("it says that it is of %v", got[2])
	}
	var told []string
	for _, r := range got {
		switch args, _ := r["args"].(map[string]any); {
		case r["ph"] == "X":
			told = append(told, fmt.Sprint(r["name"], args["own"]))
		case r["ph"] == "E" && args["order"] != nil:
			told = append(told, fmt.Sprint(args["set"], " ", int64(args["order"].(float64)), args["ahead"]))
		}
	}
	if want := "[1<nil> 01 5 1099511627776 <nil> 2<nil> 01 5 1099511627777 1]"; fmt.Sprint(told) != want {
		t.Errorf("it tells %v, want %s", told, want)
	}
	tl.Identify(nil)
	if err := tl.Start(path, false); err != nil {
		t.Fatal(err)
	}
	recordSmallJob(tl)
	tl.Submitted("x", 0)
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); strings.Contains(string(text), "gorovod_rank") ||
		strings.Contains(string(text), "order") || strings.Contains(string(text), "own") {
		t.Errorf("a file of rank 0 alone has what Horovod's has not: %s", text)
	}
}

// TestTimeIsTakenAtTheCall fails if the writer takes the events' times.
func TestTimeIsTakenAtTheCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	synctest.Test(t, func(t *testing.T) {
		tl := New()
		if err := tl.Start(path, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Microsecond)
		tl.OpStart("a", "ALLREDUCE")
		time.Sleep(2 * time.Millisecond)
		tl.OpEnd("a", tensor.Float32, nil)
		if err := tl.Stop(); err != nil {
			t.Fatal(err)
		}
	})
	for _, r := range load(t, path) {
		if want := map[any]float64{"B": 3, "E": 2003}[r["ph"]]; want > 0 && r["ts"] != want {
			t.Errorf("%v, want %v µs", r, want)
		}
	}
}

func TestStartAndStopAgain(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.json"), filepath.Join(dir, "two.json")
	if err := os.WriteFile(one, []byte(strings.Repeat("something older ", 1000)), 0o666); err != nil {
		t.Fatal(err)
	}
	tl := New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	op := func(name string) {
		tl.OpStart(name, "ALLREDUCE")
		tl.CycleStart()
		tl.OpEnd(name, tensor.Float32, tensor.Shape{1})
	}
	must(tl.Stop()) // nothing to stop
	op("off")
	if tl.On() {
		t.Error("on before Start")
	}
	must(tl.Start(one, false))
	if !tl.On() {
		t.Error("off after Start")
	}
	op("a")
	must(tl.Start(one, false)) // the same file goes on
	must(tl.Start(dir+"/../"+filepath.Base(dir)+"/one.json", true))
	op("b")
	must(tl.Start(two, false)) // completes file one
	op("c")
	must(tl.Stop())
	if tl.On() {
		t.Error("on after Stop")
	}
	op("off")
	must(tl.Stop())

	count := func(path, tensors string, marks int) {
		t.Helper()
		records := load(t, path)
		checkNested(t, records)
		var all []string
		got := 0
		for _, r := range records {
			if args, ok := r["args"].(map[string]any); ok && args["name"] != nil {
				all = append(all, args["name"].(string))
			}
			if r["ph"] == "i" {
				got++
			}
		}
		if s := strings.Join(all, " "); s != tensors || got != marks {
			t.Errorf("%s has %q and %d marks, want %q and %d", filepath.Base(path), s, got, tensors, marks)
		}
		if b, _ := os.ReadFile(path); !strings.HasSuffix(string(b), "}\n]\n") {
			t.Errorf("%s does not end tidily", path)
		}
	}
	count(one, "a b", 1)
	count(two, "c", 0)
	must(tl.Start(one, false)) // starts over
	op("d")
	must(tl.Stop())
	count(one, "d", 0)
}

// TestFileIsWrittenSoon checks that a record is written without a full batch or Stop, even after the writer has gone to
// sleep.
func TestFileIsWrittenSoon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	tl := New()
	if err := tl.Start(path, false); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		eventually(t, "sleep", tl.current.Load().idle.Load)
		name := fmt.Sprint("tensor ", i)
		tl.OpStart(name, "ALLREDUCE")
		eventually(t, name, func() bool { return names(load(t, path))[float64(i+1)] == name })
	}
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func TestPathThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "t.json")
	tl := New()
	bad := []string{filepath.Join(dir, "none", "t.json"), dir, pipe, "/dev/null"}
	for _, path := range bad {
		if err := tl.Start(path, false); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want one that names %s", err, path)
		}
		if tl.On() {
			t.Errorf("on after an error with %s", path)
		}
	}
	if err := tl.Start(bad[0], false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want that it does not exist", err)
	}
	if err := tl.Start(good, false); err != nil {
		t.Fatal(err)
	}
	tl.OpStart("a", "ALLREDUCE")
	for _, path := range bad {
		if err := tl.Start(path, false); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	tl.OpEnd("a", tensor.Float32, nil) // goes on
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
	if records := load(t, good); len(records) != 6 {
		t.Errorf("%v", records)
	}
}

// TestSwitchWhileInUse lets threads run operations while the file is changed, for the race detector. Each file must be
// valid and well nested although it begins and ends in the middle of operations.
func TestSwitchWhileInUse(t *testing.T) {
	dir := t.TempDir()
	tl := New()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				operation(tl, fmt.Sprintf("tensor %d.%d", g, i%3))
				runtime.Gosched()
			}
		})
	}
	var paths []string
	for i := range 7 {
		path := filepath.Join(dir, fmt.Sprint(i, ".json"))
		paths = append(paths, path)
		if err := tl.Start(path, i%2 == 0); err != nil {
			t.Fatal(err)
		}
		tl.OpStart(fmt.Sprint("only ", i), "ALLREDUCE")
		time.Sleep(time.Millisecond)
		if i%3 == 0 {
			if err := tl.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		records := load(t, path)
		checkNested(t, records)
		found := false
		for _, name := range names(records) {
			found = found || name == fmt.Sprint("only ", i)
		}
		if !found && tl.Dropped() == 0 {
			t.Errorf("%s lacks an event from before Stop", path)
		}
	}
}

// operation makes the engine's calls for one tensor.
func operation(tl *Timeline, name string) {
	tl.NegotiateStart(name, "ALLREDUCE")
	tl.RankReady(name, 0)
	tl.RankReady(name, 1)
	tl.NegotiateEnd(name, Agreement{Order: 7})
	tl.CycleStart()
	tl.OpStart(name, "ALLREDUCE")
	tl.ActivityStart(name, GlooAllreduce)
	tl.ActivityEnd(name)
	tl.OpEnd(name, tensor.Float32, shape)
}

var shape = tensor.Shape{64, 3, 7, 7}

func TestCallsDoNotAllocate(t *testing.T) {
	tl := New()
	check := func(state string) {
		if n := testing.AllocsPerRun(200, func() { operation(tl, "tensor") }); n != 0 {
			t.Errorf("%s: %v allocations an operation", state, n)
		}
	}
	check("off")
	if err := tl.Start(filepath.Join(t.TempDir(), "t.json"), true); err != nil {
		t.Fatal(err)
	}
	check("on") // the first run has grown the writer's buffers
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkOff(b *testing.B) {
	tl := New()
	for b.Loop() {
		tl.ActivityStart("tensor", GlooAllreduce)
	}
}

// BenchmarkEvent is the cost of an event to the engine. The benchmark empties the queue outside the measured time, so
// that no event is dropped.
func BenchmarkEvent(b *testing.B) {
	tr := benchTrace(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		tr.put(activityEnd, "tensor", "", 0)
		if tr.queue.claimed() == queueSize/2 {
			b.StopTimer()
			for tr.queue.front() != nil {
				tr.queue.pop()
			}
			tr.queue.release()
			b.StartTimer()
		}
	}
	if n := tr.dropped.Load(); n > 0 {
		b.Fatalf("%d dropped", n)
	}
}

// BenchmarkDropped is the cost of an event that finds the queue full.
func BenchmarkDropped(b *testing.B) {
	tr := benchTrace(b)
	for tr.dropped.Load() == 0 {
		tr.put(activityEnd, "tensor", "", 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		tr.put(activityStart, "tensor", "", 0)
	}
}

// BenchmarkWriter is the cost of an event to the writer, file included.
func BenchmarkWriter(b *testing.B) {
	tr := benchTrace(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		tr.put([...]kind{opStart, activityStart, activityEnd, opEnd}[i%4], "tensor", GlooAllreduce, 0)
		if i%1024 == 0 {
			tr.drain()
		}
	}
	tr.drain()
	if tr.rec.err != nil {
		b.Fatal(tr.rec.err)
	}
}

// benchTrace is a trace whose writer does not run.
func benchTrace(b *testing.B) *trace {
	f, err := os.Create(filepath.Join(b.TempDir(), "t.json"))
	if err != nil {
		b.Fatal(err)
	}
	tr, err := newTrace(f, queueSize, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return tr
}
