package tracemerge

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// save calls write to write the output. A regular file gets its new content whole or not at all. A link stays, and the
// file that it leads to is the output. A device or a pipe stays in place, and gets the output.
func save(name string, write func(io.Writer) error) error {
	name, err := target(name)
	if err != nil {
		return err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return closed(f, write(f))
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".trace-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := closed(f, write(f)); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// closed closes f, and returns the first error.
func closed(f *os.File, err error) error {
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// maxLinks is how many links target follows; the kernel follows as many.
const maxLinks = 40

// target follows links as far as they lead to names of files, whether these exist or not. The links of /proc, which
// stand for pipes and the like, may have no such names.
func target(name string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(name)
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			return name, nil // an error shows itself again when the file is made
		}
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			return name, nil
		}
		to, err := os.Readlink(name)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			// Not Join, which would shorten a/../b, though a may be a link.
			to = filepath.Dir(name) + string(filepath.Separator) + to
		}
		name = to
	}
	return "", syscall.ELOOP
}
