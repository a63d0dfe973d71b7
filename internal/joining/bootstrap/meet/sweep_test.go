package meet

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// another starts a process that lives until it is killed, and is a zombie until the test waits for it.
func another(t *testing.T) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if writerOf(c.Process.Pid) == "" {
		t.Skip("the system does not tell of processes")
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c
}

func TestWriters(t *testing.T) {
	c := another(t)
	w := writerOf(c.Process.Pid)
	if w.dead() || writerOf(os.Getpid()).dead() || w == writerOf(os.Getpid()) {
		t.Errorf("%s lives", w)
	}
	here, began, _ := strings.Cut(string(w), sight())
	pid, ticks, ok := strings.Cut(began, ".")
	if here != "" || !ok {
		t.Fatalf("%q", w)
	}
	if !writer(sight() + pid + "." + ticks + "1").dead() {
		t.Error("an earlier process with the same number is dead")
	}
	for _, unknown := range []string{"", "x", sight(), sight() + pid, sight() + "x." + ticks, sight() + "0." + ticks,
		"1234.5678." + began, "1" + string(w)} {
		if writer(unknown).dead() {
			t.Errorf("nothing can be told of %q", unknown)
		}
	}
	c.Process.Kill()
	for deadline := time.Now().Add(10 * time.Second); !w.dead(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a corpse is dead")
		}
	}
	c.Wait()
	if !w.dead() {
		t.Error("what is gone is dead")
	}
}

// Sweep removes files that killed processes have left, and files that are too old. All others stay: those of living
// processes, those of processes of which nothing is known here, and those of other packages.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	f, err := newLocalFile(dir, "job")
	if err != nil {
		t.Fatal(err)
	}
	c := another(t)
	dead, alive, elsewhere := writerOf(c.Process.Pid), writerOf(os.Getpid()), writer("0123.4567.8.9")
	c.Process.Kill()
	c.Wait()
	old := time.Now().Add(-maxAge - time.Hour)
	stays := make(map[string]bool)
	leave := func(name string, w writer, at time.Time, stay bool) {
		t.Helper()
		text, err := json.Marshal(letter{Offer: Offer{Key: []byte("k")}, Writer: w})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		stays[name] = stay
	}
	now := time.Now()
	leave(filePrefix+"dead", dead, now, false)
	leave(filePrefix+"alive", alive, now, true)
	leave(filePrefix+"elsewhere", elsewhere, now, true)
	leave(filePrefix+"nameless", "", now, true)
	leave(filePrefix+"elsewhere-old", elsewhere, old, false)
	leave(tempPrefix+string(dead)+"-1", dead, now, false)
	leave(tempPrefix+string(alive)+"-1", alive, now, true)
	leave(tempPrefix+string(elsewhere)+"-1", elsewhere, now, true)
	leave(tempPrefix+"1", "", old, false)
	leave("other-dead", dead, old, true)
	leave(filePrefix+"open", dead, old, true)
	if err := os.Chmod(filepath.Join(dir, filePrefix+"open"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.Sweep()
	for name, stay := range stays {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != stay {
			t.Errorf("%s: %v, want that it stays: %v", name, err, stay)
		}
		os.Remove(filepath.Join(dir, name))
	}
	f.Sweep()
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the empty directory stays")
	}
}

// A killed rank 0 leaves a file. Another rank removes the file when it finds that the file leads nowhere, and so does
// rank 0 of another job.
func TestAFileOfTheDead(t *testing.T) {
	dir := t.TempDir()
	leave := func() (*file, Offer) {
		f, err := newFile(dir, "lost")
		if err != nil {
			t.Fatal(err)
		}
		c := another(t)
		lost := letter{Offer: Offer{Addrs: []string{"a:1"}, Key: []byte("k")}, Writer: writerOf(c.Process.Pid)}
		text, err := json.Marshal(lost)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c.Process.Kill()
		c.Wait()
		return f, lost.Offer
	}
	gone := func(f *file) {
		t.Helper()
		if _, err := os.Lstat(f.path); err == nil {
			t.Error("it is still there")
		}
	}
	f, offer := leave()
	if _, err := f.Read(short(t), &offer); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	gone(f)

	f, _ = leave()
	other, err := newFile(dir, "other")
	if err != nil {
		t.Fatal(err)
	}
	withdraw, err := other.Publish(bounded(t), Offer{Key: []byte("o")})
	if err != nil {
		t.Fatal(err)
	}
	gone(f)
	if _, err := other.Read(bounded(t), nil); err != nil {
		t.Errorf("what a living one has written: %v", err)
	}
	withdraw()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Jobs come and go in one directory, which each removes when it finds it empty: no job loses its own file by that, and
// nothing is left behind.
func TestFleetingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	var jobs sync.WaitGroup
	for job := range 8 {
		jobs.Go(func() {
			for range 50 {
				f, err := newLocalFile(dir, string(rune('a'+job)))
				if err != nil {
					t.Error(err)
					return
				}
				offer := Offer{Key: []byte{byte(job)}}
				withdraw, err := f.Publish(bounded(t), offer)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := f.Read(bounded(t), nil); err != nil || !got.equal(offer) {
					t.Errorf("%v, %v", got, err)
				}
				withdraw()
			}
		})
	}
	jobs.Wait()
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the empty directory stays")
	}
}
