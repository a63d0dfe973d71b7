package config

import (
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

// ReadSmallFile returns the content of a file of at most most bytes. It never waits: what is no regular file (a device,
// a pipe) is an error, and so is a long file. Errors name the file, and do not contain its text.
func ReadSmallFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer does not hold it up
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s has more than %d bytes, and cannot be meant", path, most)
	}
	return text, nil
}
