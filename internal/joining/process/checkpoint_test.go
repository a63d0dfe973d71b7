package process

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A job outlives a disk that has become full, and its user hears of it: once, again after a while, and when the disk
// has room again.
func TestAFullDiskEndsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		dir, log := t.TempDir(), slog.New(slog.NewTextHandler(&said, nil))
		full := fmt.Errorf("checkpoint of commit 7: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
		u := &unwritten{}
		for i, c := range []struct {
			after time.Duration
			err   error
			says  string // empty: nothing
		}{
			{0, full, "no space left on device; training goes on, and there is no checkpoint in"},
			{time.Second, full, ""}, {toldAgain - 2*time.Second, full, ""},
			{time.Second, full, "no space left on device; training goes on, and the newest checkpoint in " + dir +
				" is that of commit 5"},
			{time.Second, nil, "checkpoints are written again"},
			{time.Second, nil, ""}, {time.Second, full, ""}, {time.Second, nil, ""},
			{toldAgain, syscall.EACCES, "permission denied; training goes on"}, // it has worked, so it may again
		} {
			time.Sleep(c.after)
			said.Reset()
			if err := u.note(c.err, dir, 7, false, log); err != nil {
				t.Errorf("%d: it ends the job: %v", i, err)
			}
			if (c.says == "") != (said.Len() == 0) || !strings.Contains(said.String(), c.says) {
				t.Errorf("%d: it says %q, want %q", i, said.String(), c.says)
			}
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("commit-%019d.checkpoint", 5)), nil, 0o600)
		}
		if err := u.note(full, dir, 7, true, log); err != full {
			t.Errorf("the job is over, and its last commit is lost without an error: %v", err)
		}
		for _, e := range []error{syscall.EACCES, syscall.ENOENT, syscall.EROFS, syscall.ENOTDIR} {
			if err := (&unwritten{}).note(e, dir, 0, false, log); err != e {
				t.Errorf("a directory that never works gives no error: %v, want %v", err, e)
			}
		}
	})
}

// SaveCheckpoint fails only if the directory has never worked.
func TestSaveCheckpointIntoADirectoryThatStopsWorking(t *testing.T) {
	var said bytes.Buffer
	before := lastWorld.unwritten
	t.Cleanup(func() { lastWorld.dir, lastWorld.log, lastWorld.unwritten = "", nil, before })
	lastWorld.dir, lastWorld.log = filepath.Join(t.TempDir(), "c"), slog.New(slog.NewTextHandler(&said, nil))
	if err := os.WriteFile(lastWorld.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveCheckpoint(1, []byte("one")); err == nil {
		t.Error("a file is no directory, and there is no error")
	}
	os.Remove(lastWorld.dir)
	if err := SaveCheckpoint(2, []byte("two")); err != nil {
		t.Fatal(err)
	}
	// A directory in the way of the partial file stands for a full disk.
	os.Mkdir(filepath.Join(lastWorld.dir, "commit-0000000000000000003.checkpoint.partial"), 0o700)
	if err := SaveCheckpoint(3, []byte("three")); err != nil || !strings.Contains(said.String(), "that of commit 2") {
		t.Errorf("error %v, and it says %s", err, &said)
	}
}

// A job that has lost all its checkpoints says that it begins anew; one that never had any does not.
func TestNoIntactCheckpoint(t *testing.T) {
	var said bytes.Buffer
	t.Cleanup(func() { lastWorld.dir, lastWorld.log = "", nil })
	lastWorld.dir, lastWorld.log = t.TempDir(), slog.New(slog.NewTextHandler(&said, nil))
	if number, _, err := LoadCheckpoint(); number != -1 || err != nil || said.Len() > 0 {
		t.Errorf("%d %v, and it says %s", number, err, &said)
	}
	file := filepath.Join(lastWorld.dir, "commit-0000000000000000003.checkpoint")
	if err := os.WriteFile(file, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if number, _, err := LoadCheckpoint(); number != -1 || err != nil ||
		!strings.Contains(said.String(), "is skipped") || !strings.Contains(said.String(), "the job begins anew") {
		t.Errorf("%d %v, and it says %s", number, err, &said)
	}
}
