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

// ReadSecretFile returns the text of a file with a secret or a token, without white space around it. It never waits
// and reads little: what is no regular file (a device, a pipe) is an error, and so is a long file. Errors name the
// file, and do not contain its text.
func ReadSecretFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer does not hold it up
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxSecretFile:
		return "", fmt.Errorf("%s has more than %d bytes, and cannot be meant", path, maxSecretFile)
	}
	return strings.TrimSpace(string(text)), nil
}
