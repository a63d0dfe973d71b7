package metrics

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/output"
)

// says runs gorovod, and checks that it says all of want. It tries again for a while, unless it is to fail.
func says(t *testing.T, fails bool, args []string, want ...string) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		out, err := exec.Command(built(t, "gorovod"), args...).CombinedOutput()
		missing := ""
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				missing = w
			}
		}
		switch {
		case (err != nil) == fails && missing == "":
			return string(out)
		case fails || time.Now().After(deadline):
			t.Errorf("gorovod %v: %v, no %q in %s", args, err, missing, out)
			return string(out)
		}
	}
}

// inPs is the first number of ps's line about the job in which one of these processes is a rank.
func inPs(t *testing.T, pids ...string) string {
	t.Helper()
	number := regexp.MustCompile(`(?m)^(` + strings.Join(pids, "|") + `) .*`)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		out, _ := exec.Command(built(t, "gorovod"), "ps").Output()
		if m := number.FindSubmatch(out); m != nil {
			return string(m[1])
		}
	}
	t.Fatalf("gorovod ps has no job of the processes %v", pids)
	return ""
}

// TestTopOfRankZero looks at a job that rank 0 shows, by the processes of its ranks, of what shows it, and of ps.
func TestTopOfRankZero(t *testing.T) {
	j := startBy(t, withCommand(t, "GOROVOD_METRICS=0"), "sh", "-c", asTorchrun, os.Args[0])
	zero, one := j.rankZero(t), j.pid(t, ".pid1")
	for _, pid := range append(observers(zero), zero, one, inPs(t, zero, one)) {
		says(t, false, []string{"top", "--once", pid}, "job "+zero+": metrics.test", "all 2 ranks have joined")
	}
	says(t, true, []string{"top", "--once", "1"}, "there is no job 1 on this host", zero+" ", "(metrics.test)")
	j.end(t)
}

// TestTopOfAJobThatNothingShows says what to do.
func TestTopOfAJobThatNothingShows(t *testing.T) {
	stop := filepath.Join(t.TempDir(), "stop")
	out := &output.Buffer{}
	c := exec.Command("sh", "-c", asTorchrun, os.Args[0])
	c.Env = append(os.Environ(), rankVariable+"="+stop)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	j := &job{stop: stop, out: out}
	zero, one := j.rankZero(t), j.pid(t, ".pid1")
	for _, pid := range []string{zero, one, inPs(t, zero, one)} {
		says(t, true, []string{"top", "--once", pid}, "nothing on this host shows job "+pid, "GOROVOD_DASHBOARD=0",
			"gorovod doctor --dump "+pid)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTopOfADrivenJob looks at a job by its workers' processes, and by that of gorovod drive.
func TestTopOfADrivenJob(t *testing.T) {
	d := drives(t, nil)
	driver, zero, one := fmt.Sprint(d.cmd.Process.Pid), d.rankZero(t), d.pid(t, ".pid1")
	for _, pid := range []string{driver, zero, one, inPs(t, zero, one)} {
		says(t, false, []string{"top", "--once", pid}, "job "+driver+": gorovod drive", "all 2 ranks have joined")
	}
	if err := os.WriteFile(d.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.over()
}
