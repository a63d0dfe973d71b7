// Package regular reads regular files, and nothing else: what is no regular file may have no end, or make its reader
// wait.
package regular

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Err is Open's error for a device, a pipe or a directory.
var Err = errors.New("it is no regular file")

// Open opens a regular file to read it. It never waits for the writer of a pipe, or for a device.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = Err
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns the content of a file of at most most bytes. It waits for no pipe or device: what is no regular
// file is an error, and so is a long file. Errors name the file, and do not contain its text.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if errors.Is(err, Err) {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s has more than %d bytes, and cannot be meant", path, most)
	}
	return text, nil
}

// Is reports whether path is a regular file, or a link to one.
func Is(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
