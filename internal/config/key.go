package config

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// leastKey is how many bytes a job's secret has at least. A proof of it can be
// recorded and tried against guesses at leisure, so fewer bits would be no secret.
const leastKey = 16

// ParseKey returns the secret that v has in hexadecimal. Errors do not tell v.
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
