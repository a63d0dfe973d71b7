package config

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// leastKey is the least length of a job's secret in bytes. An attacker can record a proof and try guesses against it,
// so a shorter secret would not be safe.
const leastKey = 16

// ParseKey decodes a secret from hexadecimal. Errors do not contain v.
func ParseKey(v string) ([]byte, error) {
	key, err := hex.DecodeString(v)
	switch {
	case err != nil:
		return nil, errors.New("it is not hexadecimal")
	case len(key) < leastKey:
		return nil, fmt.Errorf("it has fewer than %d hexadecimal digits, and can be guessed: give 64 random ones to "+
			"all ranks, as `openssl rand -hex 32` makes them", 2*leastKey)
	}
	return key, nil
}

// ReadKey is ParseKey for the text of a file, without white space around it.
func ReadKey(path string) ([]byte, error) {
	text, err := ReadSecretFile(path)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}
