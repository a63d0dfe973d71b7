package flight

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

func begin(r *Recorder, name string, at int64, shape ...int64) *Entry {
	e := r.Begin(shape, at)
	e.Name, e.Op, e.DType = name, operation.Allreduce, tensor.Float32
	return e
}

// The ring keeps the last operations, in order, and shows which places were taken.
func TestTheLastOperationsAreKept(t *testing.T) {
	r := NewRecorder(3)
	first := begin(r, "a", 1, 4)
	number := first.Number
	for i, name := range []string{"b", "c", "d"} {
		begin(r, name, int64(2+i), 4).Ended = 9
	}
	if first.Number == number {
		t.Error("the place of the oldest has not been taken")
	}
	var names []string
	for _, rec := range r.Records() {
		names = append(names, rec.Name+" "+rec.Phase())
	}
	if got := strings.Join(names, ", "); got != "b done, c done, d done" {
		t.Errorf("got %s", got)
	}
	if NewRecorder(0).Begin(nil, 1) != nil {
		t.Error("a recorder of nothing records")
	}
	shape := make([]int64, MaxDims+3)
	if got := len(func() []Record { r.Begin(shape, 5); return r.Records() }()[2].Shape); got != MaxDims {
		t.Errorf("%d lengths of a long shape", got)
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	r := NewRecorder(8)
	shape := []int64{2, 3}
	if n := testing.AllocsPerRun(100, func() { r.Begin(shape, 1).Name = "x" }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// dump is a rank's dump with these operations.
func dump(rank, size int, records ...Record) *Dump {
	return &Dump{Job: "j", Rank: rank, Size: size, Host: "h", PID: 100 + rank, Records: records}
}

// Merge names the rank that has not submitted a tensor that others wait for, the rank with another shape, and the
// unknown rank.
func TestTheOddOneOutIsNamed(t *testing.T) {
	waiting := func(name string, n int64) Record {
		return Record{Name: name, Op: "ALLREDUCE", DType: "float32", Shape: []int64{n}, Submitted: 5}
	}
	var b bytes.Buffer
	Merge(&b, []*Dump{
		dump(2, 4, Record{Name: "grad", Op: "ALLREDUCE", Submitted: 1, Ended: 2}, waiting("other", 1)),
		dump(0, 4, waiting("grad", 10)),
		dump(1, 4, waiting("grad", 11)),
	}, nil)
	for _, want := range []string{
		`rank 2 on h (pid 102): ALLREDUCE "other" (waiting)`,
		"nothing is known of rank 3\n",
		`"grad": ranks 0, 1 wait; missing: rank 2; unknown: rank 3`,
		"ALLREDUCE of float32 [10] on rank 0\n",
		"ALLREDUCE of float32 [11] on rank 1\n",
		`"other": rank 2 waits; missing: ranks 0, 1; unknown: rank 3`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// In a process set only its members are missing or unknown.
func TestALateMemberOfAProcessSetIsNamed(t *testing.T) {
	at := time.Unix(1000, 0)
	waits := Record{Set: 1, Name: "x", Op: "ALLREDUCE", Submitted: at.Add(-4 * time.Second).UnixNano()}
	for _, c := range []struct {
		members  []int
		mute     []Silent
		now, all string
	}{
		{[]int{0, 1}, nil, "rank 0 waits for rank 1 in", "\"x\": rank 0 waits; missing: rank 1\n"},
		{[]int{0, 3}, nil, "rank 0 waits for rank 3 in", "\"x\": rank 0 waits; unknown: rank 3\n"},
		{[]int{0, 3}, []Silent{{PID: 7, Rank: 3}}, "rank 0 waits for rank 3 in",
			"\"x\": rank 0 waits; missing: rank 3\n"},
		{[]int{0, 1}, []Silent{{PID: 7, Rank: 3}}, "rank 0 waits for rank 1 in",
			"\"x\": rank 0 waits; missing: rank 1\n"},
	} {
		dumps := []*Dump{dump(0, 4, waits), dump(1, 4), dump(2, 4)}
		for _, d := range dumps {
			d.Time, d.Sets = at, map[int][]int{1: c.members}
		}
		if got := Now(dumps); !strings.HasPrefix(got, c.now) {
			t.Errorf("set of %v: %s", c.members, got)
		}
		var b bytes.Buffer
		if Merge(&b, dumps, c.mute); !strings.Contains(b.String(), c.all) {
			t.Errorf("set of %v: no %q in\n%s", c.members, c.all, b.String())
		}
	}
}

// A process that does not answer is a missing rank: the one in its environment, or the only one left.
func TestWhoDoesNotAnswerIsNamed(t *testing.T) {
	grad := Record{Name: "grad", Op: "ALLREDUCE", Submitted: 5}
	for _, c := range []struct {
		size   int
		silent []Silent
		wants  []string
	}{
		{3, []Silent{{PID: 7, Rank: -1, Stopped: true}}, []string{
			"rank 1 has not come: it does not answer (its process 7 is stopped)\n",
			"\"grad\": ranks 0, 2 wait; missing: rank 1\n"}},
		{5, []Silent{{PID: 7, Rank: 3}}, []string{
			"rank 3 has not come: it does not answer (its process 7 may hang)\n", "nothing is known of ranks 1, 4\n",
			"\"grad\": ranks 0, 2 wait; missing: rank 3; unknown: ranks 1, 4\n"}},
		{5, []Silent{{PID: 7, Rank: -1}}, []string{
			"a rank does not answer (its process 7 may hang)\n", "; unknown: ranks 1, 3, 4\n"}},
		{3, []Silent{{PID: 7, Rank: 1, TooLong: true}}, []string{
			"the answer of rank 1 is left out (its process 7 has too many records to read: ",
			"\"grad\": ranks 0, 2 wait; unknown: rank 1\n"}},
	} {
		var b bytes.Buffer
		Merge(&b, []*Dump{dump(0, c.size, grad), dump(2, c.size, grad)}, c.silent)
		for _, want := range c.wants {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	}
}

func TestADumpIsSavedAndLoaded(t *testing.T) {
	dir := t.TempDir()
	for r := range 2 {
		if _, err := dump(r, 2, Record{Name: "x", Submitted: 7}).Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	dumps, err := Load(dir)
	if err != nil || len(dumps) != 2 || dumps[1].Records[0].Name != "x" {
		t.Errorf("%v %v", dumps, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%d files", len(left))
	}
}

// A process that asks itself gets an answer, because it counts as its own ancestor.
func TestAskingAProcess(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { Serve(l, func() *Dump { return dump(0, 1) }); close(served) }()
	defer func() { l.Close(); <-served }()
	dumps, silent, err := Ask(os.Getpid())
	if err != nil || len(dumps) != 1 || dumps[0].PID != 100 || silent != nil {
		t.Errorf("%v %v %v", dumps, silent, err)
	}
	jobs, _, err := Running()
	if err != nil || !slices.ContainsFunc(jobs, func(job []*Dump) bool { return job[0].PID == 100 }) {
		t.Errorf("it is not among what runs: %v, %v", jobs, err)
	}
	if _, _, err := Ask(1 << 22); err == nil || !strings.Contains(err.Error(), "there is no process") {
		t.Errorf("a process that does not exist: %v", err)
	}
}

// A process stands for a job only if it belongs to one: not the ancestor of all processes, and not a process below
// which several jobs run.
func TestAskingForOneOfSeveralJobs(t *testing.T) {
	ranks := map[string]int{}
	for _, job := range []string{"one", "", "two"} { // "" is a job of one rank
		child := exec.Command("sleep", "60")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { child.Process.Kill(); child.Wait() }()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@gorovod/flight/%d/1", child.Process.Pid),
			Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			Serve(l, func() *Dump { return &Dump{Job: job, Rank: 0, Size: 1, PID: child.Process.Pid} })
			close(served)
		}()
		defer func() { l.Close(); <-served }()
		ranks[job] = child.Process.Pid
	}
	for job, pid := range ranks {
		dumps, _, err := Ask(pid)
		if err != nil || len(dumps) != 1 || dumps[0].Job != job || dumps[0].PID != pid {
			t.Errorf("job %q of process %d: %v, %v", job, pid, dumps, err)
		}
	}
	_, _, err := Ask(os.Getpid())
	if err == nil || !strings.Contains(err.Error(), "ranks of 3 jobs run below") || !strings.Contains(err.Error(),
		fmt.Sprint(ranks["two"])) {
		t.Errorf("above three jobs: %v", err)
	}
	if dumps, _, err := Ask(1); err == nil {
		t.Errorf("everything runs below process 1: %v", dumps)
	}
}

// Reading and merging is harmless for any content of a file or a socket.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	dump(1, 2, Record{Name: "x", Op: "ALLREDUCE", Shape: []int64{1}, Submitted: 7}).Write(&b)
	f.Add(b.Bytes())
	f.Add([]byte(`{"rank":0,"size":99999999,"records":[{},{"set":3}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		d, err := Read(bytes.NewReader(p))
		if err != nil {
			return
		}
		var out bytes.Buffer
		Merge(&out, []*Dump{d, dump(0, 2)}, nil)
		d.Text(&out, 5)
	})
}

func BenchmarkRecord(b *testing.B) {
	r := NewRecorder(500)
	shape := []int64{64, 1024}
	for b.Loop() {
		begin(r, "gradient", 1, shape...).Ended = 2
	}
}

// TestNow checks the line about a job: waits come before what the ranks are doing.
func TestNow(t *testing.T) {
	at := time.Unix(1000, 0)
	before := func(seconds float64) int64 { return at.Add(-time.Duration(seconds * 1e9)).UnixNano() }
	waiting := func(seconds float64) Record {
		return Record{Name: "w", Op: "ALLREDUCE", Submitted: before(seconds)}
	}
	ended := func(seconds float64) Record {
		return Record{Name: "w", Op: "ALLREDUCE", Submitted: before(seconds + 1), Agreed: 1, Started: 1,
			Ended: before(seconds)}
	}
	failed := dump(1, 2)
	failed.Failure = "rank 0 is lost\nmore"
	for _, tt := range []struct {
		want  string
		dumps []*Dump
	}{
		{`unknown`, nil},
		{`has submitted nothing yet`, []*Dump{dump(0, 2), dump(1, 2)}},
		{`failed: rank 0 is lost`, []*Dump{dump(0, 2, waiting(9)), failed}},
		{`rank 0 waits for rank 1 in ALLREDUCE "w", for 2.5 s`, []*Dump{dump(0, 2, waiting(2.5)), dump(1, 2, ended(3))}},
		{`ranks 0, 2 wait for rank 1 in ALLREDUCE "w", for 3m20s`, []*Dump{dump(0, 3, waiting(200)), dump(1, 3),
			dump(2, 3, waiting(2))}},
		{`rank 0 waits for rank 1 in ALLREDUCE "w", for 2.0 s`, []*Dump{dump(0, 2, waiting(2))}},
		{`rank 0 waits for ranks 1, 2, 3, 4 and 5 more in ALLREDUCE "w", for 2.0 s`, []*Dump{dump(0, 10, waiting(2))}},
		{`rank 0 waits for other ranks, elsewhere or not answering in ALLREDUCE "w", for 2.0 s`,
			[]*Dump{dump(0, 2, Record{Set: 1, Name: "w", Op: "ALLREDUCE", Submitted: before(2)}), dump(1, 2)}},
		{`works; its last operation is ALLREDUCE "w"`, []*Dump{dump(0, 2, waiting(0.1)), dump(1, 2)}},
		{`works; its last operation is ALLREDUCE "w"`, []*Dump{dump(0, 1, ended(0.5))}},
		{`computes; its last operation, ALLREDUCE "w", was 4.0 s ago`, []*Dump{dump(0, 1, ended(4))}},
		{`in ALLREDUCE "w" for 4.0 s`, []*Dump{dump(0, 1, Record{Name: "w", Op: "ALLREDUCE", Submitted: before(5),
			Agreed: before(5), Started: before(4)})}},
	} {
		for _, d := range tt.dumps {
			d.Time = at
		}
		if got := Now(tt.dumps); got != tt.want {
			t.Errorf("got %s\nwant %s", got, tt.want)
		}
	}
}
