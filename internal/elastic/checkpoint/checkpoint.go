// Package checkpoint keeps the state of a job on a disk, one file for each commit. A file is complete or absent, and
// has a checksum.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/regular"
	"github.com/gorovod/gorovod/internal/base/wholefile"
)

const (
	// magic begins each file: the format and its version.
	magic = "gorovod checkpoint 1\n"
	// headerSize is the length of magic, number, length and sum, which precede the data.
	headerSize = len(magic) + 8 + 8 + sha256.Size

	prefix, suffix = "commit-", ".checkpoint"
	partial        = wholefile.Partial
	// kept is how many of the newest files stay: if the last one is damaged, an earlier one is left.
	kept = 2
)

// Save writes the state of a commit into a directory, which it creates. When Save returns nil, the file is on the disk
// and survives a crash of this host; until then the earlier files stay. Then it removes all but the newest files. One
// process at a time may save into a directory.
func Save(dir string, number int64, data []byte) (err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("checkpoint of commit %d: %w", number, err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s%019d%s", prefix, number, suffix))
	if err := wholefile.Write(name, header(number, data), data); err != nil {
		return fmt.Errorf("checkpoint of commit %d: %w", number, err)
	}
	return prune(dir, number)
}

// header returns the bytes before the data.
func header(number int64, data []byte) []byte {
	h := append(make([]byte, 0, headerSize), magic...)
	h = binary.BigEndian.AppendUint64(h, uint64(number))
	h = binary.BigEndian.AppendUint64(h, uint64(len(data)))
	sum := sha256.New()
	sum.Write(h)
	sum.Write(data)
	return sum.Sum(h)
}

// prune removes older files than the newest kept ones up to number, and unfinished files of an earlier process.
func prune(dir string, number int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove old checkpoints: %w", err)
	}
	var older []string
	for _, e := range entries {
		name := e.Name()
		n, ok := parse(strings.TrimSuffix(name, partial))
		switch {
		case !ok || n < 0 || n > number:
		case strings.HasSuffix(name, partial):
			os.Remove(filepath.Join(dir, name))
		default:
			older = append(older, name)
		}
	}
	slices.Sort(older)
	for _, name := range older[:max(0, len(older)-kept)] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old checkpoint: %w", err)
		}
	}
	return nil
}

// parse parses a file's name. The result is -1 for a number that no commit can have.
func parse(name string) (number int64, ok bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, suffix); !ok || len(digits) != 19 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1, true // too large
	}
	return number, true
}

// Newest reads the newest intact file of a directory. It calls skipped for each newer, damaged file. number is -1 if
// there is no intact file. The error says that the directory exists and cannot be read.
func Newest(dir string, skipped func(error)) (number int64, data []byte, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil, nil
	}
	if err != nil {
		return -1, nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, ok := parse(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		n, _ := parse(name)
		if n < 0 {
			skipped(fmt.Errorf("the checkpoint %s is skipped: no commit has such a number", filepath.Join(dir, name)))
			continue
		}
		data, err := read(filepath.Join(dir, name), n)
		if err == nil {
			return n, data, nil
		}
		skipped(fmt.Errorf("the checkpoint %s is skipped: %w", filepath.Join(dir, name), err))
	}
	return -1, nil, nil
}

// Numbers are those of a directory's files, ascending, by the files' names alone.
func Numbers(dir string) []int64 {
	entries, _ := os.ReadDir(dir)
	var numbers []int64
	for _, e := range entries {
		if n, ok := parse(e.Name()); ok && n >= 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// Last is the last of Numbers; -1 if there is none.
func Last(dir string) (number int64) {
	if numbers := Numbers(dir); len(numbers) > 0 {
		return numbers[len(numbers)-1]
	}
	return -1
}

// read reads one file. number is the one in the file's name.
func read(name string, number int64) ([]byte, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := make([]byte, headerSize)
	if _, err := io.ReadFull(f, h); err != nil || string(h[:len(magic)]) != magic {
		return nil, errors.New("it is no checkpoint of this version")
	}
	if n := binary.BigEndian.Uint64(h[len(magic):]); n != uint64(number) {
		return nil, fmt.Errorf("it is that of commit %d", n)
	}
	length := binary.BigEndian.Uint64(h[len(magic)+8:])
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if there := uint64(max(0, info.Size()-int64(headerSize))); there != length {
		return nil, fmt.Errorf("it has %d of its %d bytes", there, length)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	if !bytes.Equal(h, header(number, data)) {
		return nil, errors.New("its checksum is wrong")
	}
	return data, nil
}
