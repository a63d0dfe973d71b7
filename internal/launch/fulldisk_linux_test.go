package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// onSmallDisk starts a launcher with a disk of its own at dir, which is gone when the launcher is gone; options are
// mount's. It skips the test, with the reason, where mounting is not allowed.
func onSmallDisk(t *testing.T, dir, options string, args ...string) *launcher {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own needs root")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(unshare, "-m", "mount", "-t", "tmpfs", "-o", options, "none",
		dir).CombinedOutput(); err != nil {
		t.Skipf("no disk: %v: %s", err, out)
	}
	name := filepath.Join(t.TempDir(), "horovodrun")
	if err := os.Symlink(self(), name); err != nil {
		t.Fatal(err)
	}
	l := launched(t, nil)
	l.Path = unshare
	l.Args = append([]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"`,
		"sh", options, dir, name}, args...)
	return l
}

// A disk that fills up while the job runs costs the job its files. The launcher says so once for each file, and the
// exit code counts it; the terminal gets all output, and no rank ends.
func TestADiskThatFills(t *testing.T) {
	dir := t.TempDir()
	l := onSmallDisk(t, dir, "size=64k", "-np", "2", "--output-filename", dir, "sh", "-c",
		"yes 'a line' | head -n 20000; echo the end >&2")
	l.expect(1, "horovodrun: output is lost: write "+dir+"/rank.0/stdout: no space left on device",
		"/rank.1/stdout: no space left on device")
	if n := strings.Count(l.stderr.String(), "output is lost"); n < 2 || n > 4 { // four files, each at most once
		t.Errorf("it is told %d times: %s", n, &l.stderr)
	}
	if n := strings.Count(l.stdout.String(), ">:a line\n"); n != 40000 {
		t.Errorf("%d of 40000 lines came", n)
	}
	if n := strings.Count(l.stderr.String(), ">:the end\n"); n != 2 {
		t.Errorf("%d of 2 ranks came to their end: %s", n, &l.stderr)
	}
}

// A disk without room for the files keeps the job from starting.
func TestADiskThatIsFull(t *testing.T) {
	dir := t.TempDir()
	l := onSmallDisk(t, dir, "size=64k,nr_inodes=2", "-np", "2", "--output-filename", dir, "echo", "started")
	l.expect(1, "horovodrun: --output-filename: ", "no space left on device")
	if l.stdout.Len() > 0 {
		t.Errorf("it has started: %s", &l.stdout)
	}
}
