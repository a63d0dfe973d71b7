package summary_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/internal/launch"
)

// rankVariable makes this program a rank, for the time in the variable.
const rankVariable = "GOROVOD_TEST_RANK_TIME"

func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "horovodrun" || name == "gorovod-supervisor":
		os.Exit(launch.Main(os.Args))
	case os.Getenv(rankVariable) != "":
		if err := rank(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rank sums until the time of rank 0 is over.
func rank() error {
	length, err := time.ParseDuration(os.Getenv(rankVariable))
	if err != nil {
		return err
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	for end := time.Now().Add(length); ; {
		over := []int32{0}
		if hvd.Rank() == 0 && time.Now().After(end) {
			over[0] = 1
		}
		time.Sleep(10 * time.Millisecond)
		if err := hvd.Allreduce(context.Background(), "over", over, hvd.WithOp(hvd.Sum)); err != nil || over[0] > 0 {
			return err
		}
	}
}

// run runs a job of two ranks, and returns the launcher's output.
func run(t *testing.T, length time.Duration, value string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Args = []string{"horovodrun", "-np", "2", self}
	c.Env = append(os.Environ(), "GOROVOD_SUMMARY="+value, rankVariable+"="+length.String(), "HOROVOD_LOG_LEVEL=error")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.Run()
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// TestTheEndOfAJob runs jobs with and without a summary. On a busy machine, ranks may need longer until they have sent
// figures.
func TestTheEndOfAJob(t *testing.T) {
	for length := 4 * time.Second; ; length *= 2 {
		stdout, stderr, code := run(t, length, "1")
		if code != 0 || stdout != "" {
			t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
		}
		if strings.HasPrefix(stderr, "horovodrun: where the time of 2 ranks went in ") &&
			strings.Count(stderr, "\n") == 5 && strings.Contains(stderr, "\n  to try: ") {
			break
		}
		if length > time.Minute {
			t.Fatalf("no summary after %v:\n%s", length, stderr)
		}
	}
	for value, want := range map[string]int{"": 0, "0": 0, "maybe": 2} {
		_, stderr, code := run(t, 100*time.Millisecond, value)
		if code != want || strings.Contains(stderr, "where the time") || (stderr == "") != (want == 0) {
			t.Errorf("%q: exit code %d\n%s", value, code, stderr)
		}
	}
}
