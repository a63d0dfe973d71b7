package config

import (
	"strings"

	"github.com/gorovod/gorovod/internal/base/regular"
)

// maxSecretFile is the most bytes of a file with a secret or a token.
const maxSecretFile = 4 << 10

// ReadSecretFile returns the text of a file with a secret or a token, without white space around it: see regular.Read.
func ReadSecretFile(path string) (string, error) {
	text, err := regular.Read(path, maxSecretFile)
	return strings.TrimSpace(string(text)), err
}
