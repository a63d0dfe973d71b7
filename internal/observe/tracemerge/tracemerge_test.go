package tracemerge

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// job writes the timelines of an invented job, by clocks with known errors.
type job struct {
	size       int
	operations int
	every      int64 // µs from one operation to the next
	generation int
	hosts      []string
	// clock is a rank's clock at a true time, in µs.
	clock func(rank int, at int64) int64
	// late is the rank that comes 10 ms after the others.
	late func(op int) int
	// ahead: data travels with announcements, so a rank may begin 5 ms later than another ends.
	ahead bool
}

const start = int64(1_800_000_000_000_000) // µs since 1970

// write writes the file of a rank. An operation takes 500 µs.
func (j *job) write(t *testing.T, path string, rank int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	defer w.Flush()
	began := j.clock(rank, start)
	fmt.Fprintf(w, "[\n"+`{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":%d}}`, began)
	fmt.Fprintf(w, ",\n"+`{"name":"gorovod_rank","ph":"M","pid":0,"args":{"rank":%d,"size":%d,"generation":%d,`+
		`"host":%q,"job":"j%d"}}`, rank, j.size, j.generation, j.hosts[rank], j.generation)
	fmt.Fprint(w, ",\n"+`{"name":"process_name","ph":"M","pid":1,"args":{"name":"grad"}}`)
	for op := range j.operations {
		came := start + int64(op)*j.every + int64(rank)*3
		agreed := start + int64(op)*j.every + 10_000 + int64(rank)*7 + 100
		if j.late(op) == rank {
			came += 10_000
		}
		ts := func(at int64) int64 { return j.clock(rank, at) - began }
		fmt.Fprintf(w, ",\n"+`{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":%d,"pid":1}`, ts(came))
		fmt.Fprintf(w, ",\n"+`{"ph":"X","name":"%d","ts":%d,"pid":1,"dur":0,"args":{"own":1}}`, rank, ts(came))
		told := ""
		if j.ahead {
			agreed += int64(rank) * 5_000
			told = `,"ahead":1`
		}
		fmt.Fprintf(w, ",\n"+`{"ph":"E","ts":%d,"pid":1,"args":{"set":0,"order":%d%s}}`, ts(agreed), op+1, told)
		fmt.Fprintf(w, ",\n"+`{"ph":"B","name":"ALLREDUCE","ts":%d,"pid":1}`, ts(agreed+10))
		fmt.Fprintf(w, ",\n"+`{"ph":"E","ts":%d,"pid":1,"args":{"dtype":"float32"}}`, ts(agreed+510))
	}
	fmt.Fprint(w, "\n]\n")
}

// files writes the files of all ranks.
func (j *job) files(t *testing.T) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for r := range j.size {
		files = append(files, filepath.Join(dir, fmt.Sprintf("t-%d.json", r)))
		j.write(t, files[r], r)
	}
	return files
}

func small() *job {
	return &job{size: 3, operations: 100, every: 20_000, generation: 1, hosts: []string{"a", "b", "c"},
		clock: func(_ int, at int64) int64 { return at }, late: func(int) int { return 1 }}
}

func merged(t *testing.T, files ...string) *Report {
	t.Helper()
	rep, err := Merge(Options{Files: files, Output: filepath.Join(t.TempDir(), "o"), MinWait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// One rank is always late, so its operations bound the offset from one side only; sums bound it from the other.
func TestOffsetsAreWithinTheirErrors(t *testing.T) {
	wrong := []int64{0, -7_200_000_000, 1_234_567}
	j := small()
	j.clock = func(rank int, at int64) int64 { return at + wrong[rank] }
	rep := merged(t, j.files(t)...)
	for i, r := range rep.Ranks {
		c := r.Clock
		if math.Abs(c.Offset+float64(wrong[i])) > c.Error || c.Error > 600 || c.Drift != 0 {
			t.Errorf("rank %d: %v, want %d µs", i, c, -wrong[i])
		}
	}
	if late := rep.Ranks[1]; late.Last != 100 || rep.Arrows != 200 || rep.Undecided != 0 || late.Caused < 190*10_000 {
		t.Errorf("%+v, %d arrows, %d undecided", late, rep.Arrows, rep.Undecided)
	}
}

// A sum whose data came with the announcements says nothing by its end.
func TestDataThatTravelsAhead(t *testing.T) {
	j := small()
	j.ahead = true
	j.late = func(op int) int { return op % j.size }
	for i, r := range merged(t, j.files(t)...).Ranks {
		if c := r.Clock; math.Abs(c.Offset) > c.Error || i > 0 && c.Basis != Bounds || c.Drift != 0 {
			t.Errorf("rank %d: %v, want 0", i, c)
		}
	}
}

// Waits at the same time count once: an operation every 2 ms, each of which waits for 10 ms.
func TestConcurrentWaitsCountOnce(t *testing.T) {
	j := small()
	j.every = 2_000
	late := merged(t, j.files(t)...).Ranks[1]
	if all := int64(2 * (99*2_000 + 10_000)); late.Last != 100 || late.Caused > all || late.Caused < all*9/10 {
		t.Errorf("others waited %d µs, not %d, in %d operations", late.Caused, all, late.Last)
	}
}

// TestWaitsAreAUnion checks waits that end in order, and begin in any.
func TestWaitsAreAUnion(t *testing.T) {
	w, a, b := waits{}, &Rank{}, &Rank{}
	for i, c := range [][3]int64{{5, 6, 1}, {8, 9, 1}, {1, 10, 7}, {2, 10, 0}, {12, 14, 2}, {9, 13, 2},
		{90, 100, 10}, {40, 50, 10}, {45, 60, 10}} {
		if got := w.add(a, b, c[0], c[1]); got != c[2] {
			t.Errorf("wait %d, %v, adds %d", i, c, got)
		}
	}
}

// Clocks that drift apart by 40 millionths are aligned throughout a run of 10 minutes.
func TestDrift(t *testing.T) {
	j := small()
	j.operations, j.every, j.late = 3000, 200_000, func(op int) int { return op % 3 }
	j.clock = func(rank int, at int64) int64 {
		return at + int64(rank)*5_000_000 + int64(float64(rank)*40e-6*float64(at-start))
	}
	rep := merged(t, j.files(t)...)
	for i, r := range rep.Ranks {
		for _, after := range []int64{0, 300_000_000, 599_000_000} {
			at := start + after
			off := math.Abs(float64(r.Clock.at(j.clock(i, at)) - at))
			if off > r.Clock.Error+1 || r.Clock.Error > 700 {
				t.Errorf("rank %d after %d s: wrong by %v µs: %v", i, after/1_000_000, off, r.Clock)
			}
		}
	}
	if rep.Undecided > 0 || rep.Ranks[2].Last != 1000 {
		t.Errorf("%d undecided, rank 2 was last in %d", rep.Undecided, rep.Ranks[2].Last)
	}
}

// A note tells of a clock that was set during the run.
func TestAClockThatWasSet(t *testing.T) {
	j := small()
	j.clock = func(rank int, at int64) int64 {
		if rank == 1 && at > start+1_000_000 {
			return at + 3_000_000
		}
		return at
	}
	if c := merged(t, j.files(t)...).Ranks[1].Clock; c.Basis != Jumped || c.Error < 100_000 {
		t.Errorf("%v", c)
	}
}

// If ranks come at the same time, as far as the clocks tell, no rank is blamed.
func TestNobodyIsBlamedByChance(t *testing.T) {
	j := small()
	j.late = func(int) int { return -1 }
	rep, err := Merge(Options{Files: j.files(t), Output: filepath.Join(t.TempDir(), "o")})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Arrows != 0 || rep.Undecided != 100 {
		t.Errorf("%d arrows, %d undecided", rep.Arrows, rep.Undecided)
	}
}

// The ranks of a later world get the clocks of their hosts; its reference is a known host.
func TestAnElasticJob(t *testing.T) {
	wrong := map[string]int64{"a": 0, "b": 5_000_000, "c": -9_000_000}
	first, second := small(), small()
	for i, j := range []*job{first, second} {
		j.generation = i + 1
		j.clock = func(rank int, at int64) int64 { return at + wrong[j.hosts[rank]] }
	}
	first.size, first.hosts = 2, []string{"a", "b"}
	second.size, second.hosts = 2, []string{"c", "b"} // a has left, and c has come
	rep := merged(t, append(first.files(t), second.files(t)...)...)
	for _, r := range rep.Ranks {
		if c := r.Clock; math.Abs(c.Offset+float64(wrong[r.Host])) > c.Error && c.Basis != Reference || c.Error > 1200 {
			t.Errorf("world %d, %s: %v", r.Generation, r.Who(), c)
		}
	}
	if text := rep.Text("o"); !strings.Contains(text, "world 2\n  rank 0 on c: clock +9000.0") {
		t.Error(text)
	}
}

// A machine that went down leaves zeros, half a record, and then the rest.
func TestDamage(t *testing.T) {
	j := small()
	files := j.files(t)
	text, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	copy(text[len(text)/2:], make([]byte, 1000))
	text = append(text[:len(text)-3], strings.Repeat(" ", 5<<20)...) // as a killed rank leaves it
	if err := os.WriteFile(files[1], append(text, ']'), 0o644); err != nil {
		t.Fatal(err)
	}
	rep := merged(t, files...)
	if r := rep.Ranks[1]; r.Damaged < 1 || r.Damaged > 2 || r.Torn || r.Last < 80 || r.Last > 99 {
		t.Errorf("%+v", r)
	}
}

// A copy that was cut right at its beginning does not keep the other files from being merged.
func TestAFileThatIsCutOff(t *testing.T) {
	files := small().files(t)
	whole, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	line := func(n int) int { // how many bytes the first n lines have
		return len(strings.Join(strings.SplitAfterN(string(whole), "\n", n+1)[:n], ""))
	}
	for length := range line(3) - 2 { // without the end of the record that names the rank
		if length > 20 && length < line(2)-3 && length%7 > 0 {
			continue // the same as the others
		}
		if err := os.WriteFile(files[1], whole[:length], 0o644); err != nil {
			t.Fatal(err)
		}
		rep := merged(t, files...)
		text := rep.Text("o")
		if len(rep.Ranks) != 2 || !strings.Contains(text, "no file of ranks 1\n") ||
			!strings.Contains(text, files[1]+" is left out: it ends before the record") {
			t.Fatalf("cut after %d bytes: %s", length, text)
		}
	}
	if _, err := Merge(Options{Files: files[1:2], Output: filepath.Join(t.TempDir(), "o")}); err == nil ||
		!strings.Contains(err.Error(), "it ends before the record that says whose file it is") {
		t.Errorf("there is nothing to merge, and the error is %v", err)
	}
}

func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	good := small().files(t)
	other := small()
	other.size, other.hosts = 4, []string{"a", "b", "c", "d"}
	others := other.files(t)
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "[\n" + `{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":7}}`
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{write("empty", "")}, "empty: it is empty"},
		{[]string{write("text", "hello")}, "text: it is no timeline: it begins with 'h', not with ["},
		{[]string{write("other", "[\n"+`{"ph":"B","name":"x","ts":1}`+"\n]")}, "its first record does not say when it began"},
		{[]string{write("bare", "[]")}, "it has no records"},
		{[]string{write("zero", head+",\n"+`{"ph":"B","name":"x","ts":1,"pid":1}`+"\n]")}, "does not say which rank wrote it"},
		{[]string{write("short", head+"\n]")}, "does not say which rank wrote it"},
		{[]string{write("mad", head+",\n"+`{"ph":"M","name":"gorovod_rank","args":{"rank":3,"size":2}}`)}, "makes no sense"},
		{[]string{pipe, good[0]}, "pipe: it is no regular file"},
		{[]string{dir}, "it is no regular file"},
		{[]string{filepath.Join(dir, "none")}, "none: no such file"},
		{[]string{good[0], good[0]}, "are both of rank 0"},
		{[]string{good[0], others[1]}, "are of different jobs"},
	} {
		output := filepath.Join(dir, "out")
		_, err := Merge(Options{Files: c.files, Output: output})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if _, err := os.Stat(output); err == nil {
			t.Errorf("%s has been written", output)
		}
	}
	if _, err := Merge(Options{Files: good, Output: good[1]}); err == nil ||
		!strings.Contains(err.Error(), "is to be read and to be written") {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".trace-*"))
	if len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// The memory does not grow with the files.
func TestLargeFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 40 MB")
	}
	j := small()
	j.size, j.hosts, j.operations = 2, []string{"a", "b"}, 60_000
	files := j.files(t)
	if info, err := os.Stat(files[0]); err != nil || info.Size() < 18<<20 {
		t.Fatalf("the file is too small: %v, %v", info, err)
	}
	var most atomic.Uint64
	stop, over := make(chan struct{}), make(chan struct{})
	runtime.GC()
	go func() {
		defer close(over)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	rep := merged(t, files...)
	close(stop)
	<-over
	if rep.Operations != 60_000 || most.Load() > 16<<20 {
		t.Errorf("%d operations, %d MiB", rep.Operations, most.Load()>>20)
	}
	t.Logf("%d MiB", most.Load()>>20)
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "merge is needed"}, {"split a", 2, "merge is needed"}, {"merge", 2, "no files are given"},
		{"merge a", 2, "-o is needed"}, {"merge a -o -", 2, "a file's name is needed"},
		{"merge a -o b --min-wait -1", 2, "--min-wait -1: a number"},
		{"merge /no/such -o b", 1, "/no/such: no such file"},
	} {
		var b strings.Builder
		code, err := Main("gorovod trace", strings.Fields(c.args), &b)
		if code != c.code || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %d, %v", c.args, code, err)
		}
	}
}

// The names of tensors and hosts may be anything.
func TestNamesAreQuoted(t *testing.T) {
	j := small()
	j.hosts = []string{"a\"</script>", "b", "c"}
	output := filepath.Join(t.TempDir(), "o")
	if _, err := Merge(Options{Files: j.files(t), Output: output}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(output)
	if err != nil || !json.Valid(text) || strings.Contains(string(text), "</script>") {
		t.Errorf("%v, %.300s", err, text)
	}
}
