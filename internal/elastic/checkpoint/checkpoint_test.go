package checkpoint

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newest(t *testing.T, dir string) (number int64, data []byte, skipped []string) {
	t.Helper()
	number, data, err := Newest(dir, func(err error) { skipped = append(skipped, err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	return number, data, skipped
}

func TestTheNewestIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	if n, _, skipped := newest(t, dir); n != -1 || skipped != nil {
		t.Errorf("of no directory: %d %v", n, skipped)
	}
	for n := range int64(12) {
		if err := Save(dir, n, bytes.Repeat([]byte{byte(n)}, int(n)*1000)); err != nil {
			t.Fatal(err)
		}
		got, data, skipped := newest(t, dir)
		if got != n || len(data) != int(n)*1000 || bytes.ContainsFunc(data,
			func(r rune) bool { return r != rune(n) }) || skipped != nil {
			t.Fatalf("after %d: %d, %d bytes, %v", n, got, len(data), skipped)
		}
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != kept {
		t.Errorf("%d files are left: %v", len(entries), entries)
	}
	// A job that begins again does not remove files with higher numbers.
	if err := Save(dir, 3, nil); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := newest(t, dir); n != 11 {
		t.Errorf("got %d", n)
	}
}

// A clock may have been set back between two commits, or forth: the number says which one is the newest, and which ones
// may go.
func TestTheClockSteps(t *testing.T) {
	dir := t.TempDir()
	step := 48 * time.Hour
	for n := range int64(6) {
		if err := Save(dir, n, []byte{byte(n)}); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(step)
		if step = -step; n == 5 {
			at = time.Unix(0, 0) // a machine that has lost its clock
		}
		if err := os.Chtimes(filepath.Join(dir, fmt.Sprintf("commit-%019d.checkpoint", n)), at, at); err != nil {
			t.Fatal(err)
		}
		if got, data, skipped := newest(t, dir); got != n || len(data) != 1 || data[0] != byte(n) || skipped != nil {
			t.Fatalf("after commit %d: %d %v %v", n, got, data, skipped)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != kept || !strings.HasSuffix(left[0], "4.checkpoint") {
		t.Errorf("left: %v %v", left, err)
	}
}

// Nothing waits for the writer of a pipe that has the name of a checkpoint.
func TestWhatIsNoFileIsSkipped(t *testing.T) {
	dir := t.TempDir()
	if err := Save(dir, 3, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "commit-0000000000000000900.checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "commit-0000000000000000901.checkpoint"), 0o700); err != nil {
		t.Fatal(err)
	}
	n, data, skipped := newest(t, dir)
	if n != 3 || string(data) != "state" || len(skipped) != 2 ||
		!strings.Contains(skipped[1], "900.checkpoint is skipped: it is no regular file") {
		t.Errorf("%d %q %q", n, data, skipped)
	}
}

func TestDamagedFilesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	for n := range int64(2) {
		if err := Save(dir, n, []byte("state of a job")); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, "commit-0000000000000000001.checkpoint")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, content []byte, says string) {
		t.Helper()
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, data, skipped := newest(t, dir)
		if n != 0 || string(data) != "state of a job" || len(skipped) != 1 || !strings.Contains(skipped[0], says) ||
			!strings.Contains(skipped[0], name) {
			t.Errorf("%s: got %d %q %v", what, n, data, skipped)
		}
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x40
		check("a bit", flipped, "skipped")
		check("cut", whole[:i], "skipped")
	}
	check("longer", append(bytes.Clone(whole), 0), "bytes")
	check("foreign", []byte("\x80\x04\x95 a pickle, perhaps, of some other program, longer than a header is"),
		"no checkpoint")
	other := filepath.Join(dir, "commit-0000000000000000000.checkpoint")
	misnamed, _ := os.ReadFile(other)
	check("misnamed", misnamed, "that of commit 0")
	// A file whose number is too large hides no other file, and is reported.
	large := filepath.Join(dir, "commit-9999999999999999999.checkpoint")
	if err := os.WriteFile(large, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, _, skipped := newest(t, dir); n != 1 || len(skipped) != 1 || !strings.Contains(skipped[0], large) ||
		!strings.Contains(skipped[0], "no commit has such a number") {
		t.Errorf("too large a number: got %d %v", n, skipped)
	}
	if err := os.Remove(large); err != nil {
		t.Fatal(err)
	}

	// Files of other programs are neither read nor removed.
	for _, foreign := range []string{"commit-1.checkpoint", "model.pt",
		"commit-0000000000000000009.checkpoint.partial"} {
		if err := os.WriteFile(filepath.Join(dir, foreign), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("among others", whole[:10], "skipped")
	if err := Save(dir, 5, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "model.pt")); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := Save(dir, 1, []byte("one")); err != nil {
		t.Fatal(err)
	}
	// A directory in the way of the partial file stands for a full disk.
	if err := os.Mkdir(filepath.Join(dir, "commit-0000000000000000002.checkpoint"+partial), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Save(dir, 2, []byte("two")); err == nil || !strings.Contains(err.Error(), "commit 2") {
		t.Errorf("got %v", err)
	}
	if n, data, _ := newest(t, dir); n != 1 || string(data) != "one" {
		t.Errorf("got %d %q", n, data)
	}
}
