package jobs

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/flight"
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
	lines := strings.SplitAfter(out.String(), "\n")
	for i, line := range lines {
		for _, more := range lines[i+1:] { // what the job does
			if !strings.HasPrefix(more, "  ") {
				break
			}
			line += more
		}
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

// No line is wider than a terminal of 80 columns, though the command is long, and so is what the job does.
func TestPsFitsIntoATerminal(t *testing.T) {
	now := time.Now()
	j := Job{PID: 4194304, Ranks: []int{0}, Size: 128, Network: "shm", Started: now.Add(-100 * time.Hour),
		Command: strings.Repeat("python train.py ", 9), Now: strings.Repeat("ranks 0, 1 wait for rank 2 ", 9)}
	other := j
	other.PID, other.Now = 7, "works"
	var out strings.Builder
	if err := writeTable(&out, []Job{j, other}, nil, now); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for _, line := range lines {
		if len([]rune(line)) > 80 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
	if strings.Index(lines[0], "RANKS") != strings.Index(lines[1], "1 of 128") || !strings.Contains(out.String(),
		"\n7        1 of 128  ") || !strings.HasSuffix(out.String(), "\n  works\n") {
		t.Errorf("not a table:\n%s", &out)
	}
}

func TestTheScriptIsInTheShortCommand(t *testing.T) {
	const folder = "/opt/conda/envs/long-name/bin/"
	for command, want := range map[string]string{
		"python train.py": "python train.py",
		folder + "python3.11 /home/somebody/projects/vision/train_resnet.py --lr 0.1": "python3.11 " +
			"train_resnet.py --lr 0.1",
		folder + "python /home/somebody/train.py --out=/data/very/long/name/of/a/folder": "python " +
			"train.py --out=/data/very/long/n…",
	} {
		if got := Short(command, MostCommand); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
