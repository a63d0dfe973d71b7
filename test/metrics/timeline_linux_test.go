package metrics

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestATimelineFillsItsDisk checks that rank 0 says at once, and once, that its timeline has no more room.
func TestATimelineFillsItsDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("no disk of its own: %v: %s", err, out)
	}
	j := startBy(t, nil, append([]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs -o size=64k none "$1" && shift &&
		exec "$@"`, "sh", dir, built(t, "horovodrun"), "-np", "2", "--timeline-filename", dir + "/t.json",
		"--metrics-port", "0"}, os.Args[0])...)
	const warning = "the timeline ends before the job, because its file cannot be written"
	j.await(t, "the disk is full", "", func(string) bool { return strings.Contains(j.out.String(), warning) })
	time.Sleep(100 * time.Millisecond)
	j.end(t)
	if n := strings.Count(j.out.String(), "no space left on device"); n != 1 {
		t.Errorf("it is told %d times: %s", n, j.out)
	}
}
