package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxSecretFile is the most bytes of a file with a secret or a token.
const maxSecretFile = 4 << 10

// ReadSecretFile returns the text of a file with a secret or a token, without white space around it: see ReadSmallFile.
func ReadSecretFile(path string) (string, error) {
	text, err := ReadSmallFile(path, maxSecretFile)
	return strings.TrimSpace(string(text)), err
}

// ErrNotRegular is OpenRegular's error for a device, a pipe or a directory.
var ErrNotRegular = errors.New("it is no regular file")

// OpenRegular opens a regular file to read it. It never waits, not even for the writer of a pipe.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadSmallFile returns the content of a file of at most most bytes. It never waits: what is no regular file (a device,
// a pipe) is an error, and so is a long file. Errors name the file, and do not contain its text.
func ReadSmallFile(path string, most int64) ([]byte, error) {
	f, err := OpenRegular(path)
	if errors.Is(err, ErrNotRegular) {
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
