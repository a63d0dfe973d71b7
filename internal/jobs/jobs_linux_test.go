package jobs

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/flight"
)

// serve lets this process answer as the ranks of a job.
func serve(t *testing.T, dumps ...flight.Dump) {
	t.Helper()
	for i := range dumps {
		l, err := flight.Listen()
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() { flight.Serve(l, func() *flight.Dump { return &dumps[i] }); close(served) }()
		t.Cleanup(func() { l.Close(); <-served })
	}
}

// lineOf is ps's line about the job that this process serves.
func lineOf(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	if code, err := Main("gorovod ps", args, &out); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, fmt.Sprint(os.Getpid(), " ")) || strings.Contains(line, fmt.Sprintf(`"pid":%d,`,
			os.Getpid())) {
			return line
		}
	}
	t.Fatalf("nothing is said of process %d:\n%s", os.Getpid(), &out)
	return ""
}

// TestPs serves two ranks of a job of three, and reads ps's output. A rank's text cannot control the terminal, or add a
// line.
func TestPs(t *testing.T) {
	if l := flight.Launcher(os.Getpid()); l != 0 {
		t.Skipf("this test runs below the launcher %d", l)
	}
	now := time.Now()
	rank := func(r int, records ...flight.Record) flight.Dump {
		return flight.Dump{Job: t.Name(), Rank: r, Size: 3, PID: os.Getpid(), Host: "h", Network: "shm", Time: now,
			Records: records}
	}
	serve(t, rank(2), rank(0, flight.Record{Name: "a\x1b[31m\nb", Op: "ALLREDUCE",
		Submitted: now.Add(-3 * time.Second).UnixNano()}))
	line := lineOf(t)
	for _, want := range []string{"2 of 3", "shm", "jobs.test", "rank 0 waits for rank 2 in ALLREDUCE", "for 3.0 s\n"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %q", want, line)
		}
	}
	if strings.ContainsAny(line, "\x1b") {
		t.Errorf("%q", line)
	}
	var j Job
	if err := json.Unmarshal([]byte(lineOf(t, "--json")), &j); err != nil || fmt.Sprint(j.Ranks) != "[0 2]" ||
		j.Size != 3 || time.Since(j.Started) < 0 || time.Since(j.Started) > time.Hour {
		t.Errorf("%+v %v", j, err)
	}
}

func TestPsRefuses(t *testing.T) {
	var out strings.Builder
	if code, err := Main("gorovod ps", []string{"4711"}, &out); code != 2 || err == nil {
		t.Error(code, err)
	}
}
