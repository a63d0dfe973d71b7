package meet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// file is a board in a directory that all ranks share. It is named for the job, only
// its owner may read it, and a file that belongs to somebody else, or that others may
// read or write, is not believed. One that an earlier start of the same job has left
// behind leads nowhere, and is read again until rank 0 has replaced it.
type file struct {
	dir, path string
}

const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
	// maxFile bounds what is read.
	maxFile = 16 << 10
)

// newFile is the board of a job in dir. A private directory is made where it is
// missing, and must be this user's alone.
func newFile(dir, job string, private bool) (*file, error) {
	sum := sha256.Sum256([]byte(job))
	f := &file{dir, filepath.Join(dir, "rendezvous-"+hex.EncodeToString(sum[:12]))}
	if private {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%w; GOROVOD_RENDEZVOUS_DIR names another directory that all ranks share", err)
		}
	}
	info, err := os.Lstat(dir)
	if err == nil && !private {
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is no directory", dir)
	case private && !ours(info):
		return nil, fmt.Errorf("%s must belong to this user and be closed to others; GOROVOD_RENDEZVOUS_DIR names another directory that all ranks share", dir)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return nil, fmt.Errorf("everybody may replace files in %s", dir)
	}
	return f, nil
}

// ours reports that this user owns it, and others may neither read nor write it.
func ours(info fs.FileInfo) bool {
	owner, ok := ownerOf(info)
	return ok && owner == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

func (f *file) String() string { return "the file " + f.path }

// Publish replaces what is there in one step.
func (f *file) Publish(_ context.Context, o Offer) (withdraw func(), err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	fresh, err := os.CreateTemp(f.dir, ".rendezvous-") // 0600, and new
	if err != nil {
		return nil, err
	}
	_, err = fresh.Write(text)
	if err == nil {
		err = fresh.Sync()
	}
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), f.path)
	}
	if err != nil {
		os.Remove(fresh.Name())
		return nil, err
	}
	return func() {
		// A later start of the job may have put its own in this place.
		if there, err := f.read(); err == nil && there.equal(o) {
			os.Remove(f.path)
		}
	}, nil
}

// Read polls: no notification crosses a network file system.
func (f *file) Read(ctx context.Context, stale *Offer) (Offer, error) {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		os.ReadDir(f.dir) // makes a network file system look for what is new
		o, err := f.read()
		switch {
		case err == nil && (stale == nil || !o.equal(*stale)):
			return o, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return Offer{}, err
		}
		if !sleep(ctx, pause) {
			what := "there is none"
			if stale != nil {
				what = "what it says is out of date"
			}
			return Offer{}, fmt.Errorf("rank 0 has not written %s: %s (do all ranks run, and share this directory? GOROVOD_RENDEZVOUS_DIR names another): %w", f.path, what, ctx.Err())
		}
	}
}

func (f *file) read() (o Offer, err error) {
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return o, &fs.PathError{Op: "open", Path: f.path, Err: err}
	}
	open := os.NewFile(uintptr(fd), f.path)
	defer open.Close()
	info, err := open.Stat()
	if err != nil {
		return o, err
	}
	if !info.Mode().IsRegular() || !ours(info) || info.Size() > maxFile {
		return o, fmt.Errorf("%s is not believed: it must be a file of this user that others can neither read nor write", f.path)
	}
	if err := json.NewDecoder(open).Decode(&o); err != nil {
		return o, fmt.Errorf("%s is not what rank 0 writes: %w", f.path, err)
	}
	return o, nil
}

func (o Offer) equal(other Offer) bool {
	return slices.Equal(o.Addrs, other.Addrs) && slices.Equal(o.Key, other.Key) && o.Trouble == other.Trouble
}

// ownerOf is the user who owns a file, where the system tells.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
