// Package tablefile keeps sparse tables on a disk. A save is a directory:
//
//	manifest            which table it is, and in which file the rows of each slot are
//	rows-ID-00000.bin   the rows of the slots that member 0 had when it saved them, as package table's records
//	rows-ID-00001.bin   those of member 1, and so on
//
// The members write their files, and then one of them writes the manifest, which takes the place of an earlier one at
// once. So a save is whole or absent, and an earlier one in the directory stays until then. ID differs in each save.
// Any number of readers can read a save: each of them reads the slots that it wants.
//
// Whatever a file says is checked before it is used, and no memory is taken for what is not there.
package tablefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// Manifest says what a save has.
type Manifest struct {
	Table    table.Options
	Progress table.Progress
	Files    []File
}

// File is a file with the rows of some slots, which stand in it one after the other, without gaps.
type File struct {
	Name  string
	Bytes int64
	Slots []Slot
}

// Slot says what a file has of a slot.
type Slot struct {
	Number int
	table.Counts
	Sum uint32 // the CRC-32C of its records
}

// bytes is the length of the slot's records, of which those of rows have so many bytes each.
func (s *Slot) bytes(row int64) int64 { return s.Rows*row + s.Candidates*table.CandidateBytes }

// MarshalJSON writes the four numbers: there are 4,096 of them.
func (s Slot) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]int64{int64(s.Number), s.Rows, s.Candidates, int64(s.Sum)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Slot) UnmarshalJSON(p []byte) error {
	var all []int64
	if err := json.Unmarshal(p, &all); err != nil {
		return err
	}
	if len(all) != 4 || all[0] < 0 || all[0] >= slots.Count || all[1] < 0 || all[1] > table.MaxRows || all[2] < 0 ||
		all[2] > table.MaxRows || all[3] < 0 || all[3] > math.MaxUint32 {
		return fmt.Errorf("%v describe no slot", all)
	}
	*s = Slot{int(all[0]), table.Counts{Rows: all[1], Candidates: all[2]}, uint32(all[3])}
	return nil
}

const (
	// manifestName is the name of the manifest in its directory.
	manifestName = "manifest"
	// magic begins a manifest: the format and its version. The rest of the line is the SHA-256 of the JSON after it.
	magic = "gorovod sparse table 1 "
	// mostManifest is the most bytes of a manifest: 4,096 files of one slot each have some 500 KiB.
	mostManifest = 4 << 20
)

// fileName matches the names of files with rows.
var fileName = lazyregexp.New(`^rows-[0-9a-f]{16}-[0-9]{5}\.bin$`)

// FileName is the name of the file of a member of a save.
func FileName(id uint64, member int) string { return fmt.Sprintf("rows-%016x-%05d.bin", id, member) }

// encode writes a manifest.
func (m *Manifest) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append([]byte(head(text)), text...), nil
}

// head is the first line of a manifest.
func head(text []byte) string {
	sum := sha256.Sum256(text)
	return magic + hex.EncodeToString(sum[:]) + "\n"
}

// decode reads a manifest, and checks all of it.
func decode(p []byte) (*Manifest, error) {
	line, text, _ := bytes.Cut(p, []byte("\n"))
	switch {
	case !strings.HasPrefix(string(line), strings.TrimRight(magic, "1 ")):
		return nil, errors.New("it is no manifest of a sparse table")
	case !strings.HasPrefix(string(line), magic):
		return nil, errors.New("it is a manifest of another version")
	case string(line)+"\n" != head(text):
		return nil, errors.New("its checksum is wrong")
	}
	m := new(Manifest)
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	if err := from.Decode(m); err != nil {
		return nil, err
	}
	if _, err := from.Token(); err != io.EOF {
		return nil, errors.New("there is something after its end")
	}
	return m, m.check()
}

// check says what is wrong with a manifest, if something is.
func (m *Manifest) check() error {
	if err := m.Table.Check(); err != nil {
		return err
	}
	if err := m.Table.CheckProgress(&m.Progress); err != nil {
		return err
	}
	var has [slots.Count]bool
	length, names := int64(m.Table.RecordBytes()), map[string]bool{}
	for i := range m.Files {
		f := &m.Files[i]
		if !fileName().MatchString(f.Name) || names[f.Name] {
			return fmt.Errorf("%q is no name for a file of rows, or stands there twice", f.Name)
		}
		names[f.Name] = true
		total := int64(0)
		for _, s := range f.Slots {
			if has[s.Number] {
				return fmt.Errorf("slot %d stands there twice", s.Number)
			}
			if s.Candidates > 0 && m.Table.Admit <= 1 {
				return fmt.Errorf("slot %d has %d keys without rows, and every key has a row", s.Number, s.Candidates)
			}
			if n := s.bytes(length); n > math.MaxInt64-total { // n is less than 2 to the 52nd
				return fmt.Errorf("%s: slot %d has %d bytes, more than a file can have", f.Name, s.Number, n)
			}
			has[s.Number] = true
			total += s.bytes(length)
		}
		if total != f.Bytes {
			return fmt.Errorf("%s: %d bytes, and its slots have %d", f.Name, f.Bytes, total)
		}
	}
	return missing(&has)
}

// missing names the first range of slots that no file has.
func missing(has *[slots.Count]bool) error {
	for first, there := range has {
		if there {
			continue
		}
		last := first
		for last+1 < len(has) && !has[last+1] {
			last++
		}
		return fmt.Errorf("no file has slots %d to %d", first, last)
	}
	return nil
}

// Fits says why a table with options o cannot have the rows of the save, if it cannot. Only the learning rate and the
// rules of eviction may differ, and the keys may be more.
func (m *Manifest) Fits(o *table.Options) error {
	saved := m.Table
	saved.Rate, saved.Idle, saved.Keep, saved.Rows = o.Rate, o.Idle, o.Keep, o.Rows
	if saved.Keys > 0 && (o.Keys == 0 || o.Keys > saved.Keys) {
		saved.Keys = o.Keys
	}
	if what, its, own := saved.Difference(o); what != "" {
		return fmt.Errorf("the save is of a table whose %s is %v; here it is %v", what, its, own)
	}
	return nil
}

// Rows is how many rows the save has.
func (m *Manifest) Rows() int64 {
	n := int64(0)
	for i := range m.Files {
		for _, s := range m.Files[i].Slots {
			n += s.Rows
		}
	}
	return n
}
