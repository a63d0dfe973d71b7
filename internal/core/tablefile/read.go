package tablefile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/base/regular"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// Save is a save that is read.
type Save struct {
	Manifest
	dir string
	// Digest tells this save from every other one, as far as an accident may bring them together.
	Digest string
	places [slots.Count]place
}

// place says where the rows of a slot are.
type place struct {
	file   int
	offset int64
	slot   Slot
}

// Open reads the manifest of a save, and checks it.
func Open(dir string) (*Save, error) {
	path := filepath.Join(dir, manifestName)
	text, err := regular.Read(path, mostManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no save of a table: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	m, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &Save{Manifest: *m, dir: dir, Digest: string(text[:min(len(text), len(head(nil)))])}
	length := int64(m.Table.RecordBytes())
	for i := range m.Files {
		offset := int64(0)
		for _, slot := range m.Files[i].Slots {
			s.places[slot.Number] = place{i, offset, slot}
			offset += slot.bytes(length)
		}
	}
	return s, nil
}

// chunk is about how much of a file is read at a time.
const chunk = 1 << 20

// Read reads the rows and candidates of some slots, and checks them. It puts them into a table, unless that is nil. It
// asks stop now and then whether to give up.
//
// A slot's checksum is known only after its last record. So a caller that must not use damaged rows first reads all
// without a table.
func (s *Save) Read(wanted []int, into *table.Table, stop func() error) error {
	byFile := make([][]*place, len(s.Files))
	for _, number := range wanted {
		if p := &s.places[number]; p.slot.Counts != (table.Counts{}) {
			byFile[p.file] = append(byFile[p.file], p)
		}
	}
	r := reader{checker: table.NewRecordChecker(&s.Table), into: into, stop: stop}
	r.buffer = make([]byte, max(chunk, s.Table.RecordBytes()))
	for i, places := range byFile {
		if len(places) == 0 {
			continue
		}
		if err := r.file(filepath.Join(s.dir, s.Files[i].Name), s.Files[i].Bytes, places); err != nil {
			return err
		}
	}
	return nil
}

type reader struct {
	checker *table.RecordChecker
	buffer  []byte
	into    *table.Table
	stop    func() error

	// Of a slot: how far it has been read, and the checksum so far.
	at  int64
	sum uint32
}

// file reads slots of a file, which has so many bytes.
func (r *reader) file(path string, bytes int64, places []*place) error {
	f, err := regular.Open(path)
	if err != nil {
		if !errors.As(err, new(*fs.PathError)) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() != bytes {
		return fmt.Errorf("%s has %d of its %d bytes", path, info.Size(), bytes)
	}
	for _, p := range places {
		if err := r.slot(f, p); err != nil {
			return fmt.Errorf("%s: slot %d: %w", path, p.slot.Number, err)
		}
	}
	return nil
}

func (r *reader) slot(f *os.File, p *place) error {
	r.at, r.sum = p.offset, 0
	rows, candidates := (*table.Table).Insert, (*table.Table).InsertCandidates
	if err := r.records(f, p.slot.Rows, r.checker.Begin(p.slot.Number, false), rows); err != nil {
		return err
	}
	if err := r.records(f, p.slot.Candidates, r.checker.Begin(p.slot.Number, true), candidates); err != nil {
		return err
	}
	if r.sum != p.slot.Sum {
		return errors.New("the checksum is wrong")
	}
	return nil
}

// records reads n records of a length, and puts them into the table, if there is one.
func (r *reader) records(f *os.File, n int64, length int, put func(*table.Table, []byte) error) error {
	most := int64(len(r.buffer) / length)
	for ; n > 0; n -= min(n, most) {
		if err := r.stop(); err != nil {
			return err
		}
		p := r.buffer[:min(n, most)*int64(length)]
		if _, err := f.ReadAt(p, r.at); err != nil {
			return err
		}
		r.at += int64(len(p))
		r.sum = crc32.Update(r.sum, castagnoli, p)
		if err := r.checker.Check(p); err != nil {
			return err
		}
		if r.into != nil {
			if err := put(r.into, p); err != nil {
				return err
			}
		}
	}
	return nil
}
