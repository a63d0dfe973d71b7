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

// file is a store in a directory that all ranks share. The file has the job's name, and only its owner may read it.
// Read refuses a file that belongs to somebody else, or that others may read or write. A file that an earlier start of
// the same job has left leads nowhere. Read reads it again until rank 0 has replaced it.
//
// The file names the process that has written it, so that the next process can remove the file of a killed one.
type file struct {
	dir, path string
	// A private directory belongs to this user alone, and is made if it is missing. A fleeting one is removed when it
	// is empty.
	private, fleeting bool
}

// letter is the content of the file.
type letter struct {
	Offer
	Writer writer `json:"writer,omitempty"`
	// written is the time of writing, by the clock of the file system.
	written time.Time
}

const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
	// maxFile is the most bytes that are read.
	maxFile = 16 << 10
	// maxAge is the age after which nobody reads a file any more, even if it is not known whether its writer lives.
	maxAge = 7 * 24 * time.Hour

	filePrefix = "rendezvous-"
	// tempPrefix begins the names of files that are not yet, or no longer, in their place. The writer and random
	// characters follow.
	tempPrefix = ".rendezvous-"
)

// newFile returns the store of a job in a directory that the user has named.
func newFile(dir, job string) (*file, error) { return (&file{dir: dir}).named(job) }

// newPrivateFile returns the store of a job in a directory that hosts may share.
func newPrivateFile(dir, job string) (*file, error) {
	return (&file{dir: dir, private: true}).named(job)
}

// newLocalFile returns the store of a job in a directory of this host.
func newLocalFile(dir, job string) (*file, error) {
	return (&file{dir: dir, private: true, fleeting: true}).named(job)
}

func (f *file) named(job string) (*file, error) {
	sum := sha256.Sum256([]byte(job))
	f.path = filepath.Join(f.dir, filePrefix+hex.EncodeToString(sum[:12]))
	return f, f.prepare()
}

// prepare makes a private directory if it is missing, and checks that nobody else can replace this user's file.
func (f *file) prepare() error {
	if f.private {
		if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w; GOROVOD_RENDEZVOUS_DIR names another directory that all ranks share", err)
		}
	}
	info, err := os.Lstat(f.dir)
	if err == nil && !f.private {
		info, err = os.Stat(f.dir)
	}
	switch {
	case err != nil && f.fleeting && errors.Is(err, fs.ErrNotExist):
		return nil // another job has just removed it; create makes it again
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", f.dir)
	case f.private && !ours(info):
		return fmt.Errorf("%s must belong to this user and be closed to others; GOROVOD_RENDEZVOUS_DIR names another "+
			"directory that all ranks share", f.dir)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("everybody may replace files in %s", f.dir)
	}
	return nil
}

// ours reports that this user owns it, and that others may neither read nor write it.
func ours(info fs.FileInfo) bool {
	owner, ok := ownerOf(info)
	return ok && owner == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

func (f *file) String() string { return "the file " + f.path }

// Publish replaces the present file in one step.
func (f *file) Publish(_ context.Context, o Offer) (withdraw func(), err error) {
	f.Sweep()
	mine := letter{Offer: o, Writer: writerOf(os.Getpid())}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	fresh, err := f.create(mine.Writer)
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
		// A later start of the job may have put its own file in this place.
		f.remove(f.path, func(there letter) bool { return there.equal(o) })
		f.leave()
	}, nil
}

// create makes a file under a temporary name.
func (f *file) create(w writer) (fresh *os.File, err error) {
	const tries = 10 // others may remove an empty directory again and again
	for range tries {
		fresh, err = os.CreateTemp(f.dir, tempPrefix+string(w)+"-") // 0600, and new
		if !f.fleeting || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err := f.prepare(); err != nil {
			return nil, err
		}
	}
	return fresh, err
}

// Read polls: no notification crosses a network file system.
func (f *file) Read(ctx context.Context, stale *Offer) (Offer, error) {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		os.ReadDir(f.dir) // makes a network file system look for new files
		there, err := read(f.path)
		switch {
		case err == nil && (stale == nil || !there.equal(*stale)):
			return there.Offer, nil
		case err == nil && there.Writer.dead():
			f.remove(f.path, left)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return Offer{}, err
		}
		if !sleep(ctx, pause) {
			what := "there is none"
			if stale != nil {
				what = "what it says is out of date"
			}
			return Offer{}, fmt.Errorf("rank 0 has not written %s: %s (do all ranks run, and share this directory? "+
				"GOROVOD_RENDEZVOUS_DIR names another): %w", f.path, what, ctx.Err())
		}
	}
}

func read(path string) (there letter, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return there, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	open := os.NewFile(uintptr(fd), path)
	defer open.Close()
	info, err := open.Stat()
	if err != nil {
		return there, err
	}
	if !info.Mode().IsRegular() || !ours(info) || info.Size() > maxFile {
		return there, fmt.Errorf("%s is not believed: it must be a file of this user that others can neither "+
			"read nor write", path)
	}
	if err := json.NewDecoder(open).Decode(&there); err != nil {
		return there, fmt.Errorf("%s is not what rank 0 writes: %w", path, err)
	}
	there.written = info.ModTime()
	return there, nil
}

func (o Offer) equal(other Offer) bool {
	return slices.Equal(o.Addrs, other.Addrs) && slices.Equal(o.Key, other.Key) && o.Trouble == other.Trouble
}

// ownerOf returns the user who owns a file, if the system tells.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
