// Package data holds the handwritten digits that the examples learn; see
// README.md for where they come from.
package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Pixels is the number of pixels of an image.
const Pixels = 64

// Digit is one image and what it shows.
type Digit struct {
	Image [Pixels]float32 // row by row, 0 (paper) to 1 (ink)
	Label int             // 0 to 9
}

//go:embed digits.csv.gz
var file []byte

// Digits reads all 1,797 of them, always in the same order.
func Digits() ([]Digit, error) {
	zr, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("digits: %w", err)
	}
	var digits []Digit
	lines := bufio.NewScanner(zr)
	for lines.Scan() {
		d, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("digits, line %d: %w", len(digits)+1, err)
		}
		digits = append(digits, d)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("digits: %w", err)
	}
	return digits, nil
}

func parse(line string) (d Digit, err error) {
	fields := strings.Split(line, ",")
	if len(fields) != Pixels+1 {
		return d, fmt.Errorf("%d fields, not %d", len(fields), Pixels+1)
	}
	for i, field := range fields {
		v, err := strconv.Atoi(field)
		if err != nil {
			return d, err
		}
		if i < Pixels {
			d.Image[i] = float32(v) / 16
		} else {
			d.Label = v
		}
	}
	return d, nil
}
