package tablefile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/wholefile"
	"github.com/gorovod/gorovod/internal/core/table"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// WriteRows writes the rows of some slots of a table, which others may use meanwhile, to a file of a directory. When it
// returns no error, the file is on the disk. It asks stop now and then whether to give up. It needs memory for the rows
// of one slot.
func WriteRows(dir, name string, t *table.Table, slots []int, stop func() error) (*File, error) {
	path := filepath.Join(dir, name)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	f, err := writeSlots(out, t, slots, stop)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = wholefile.SyncDir(dir)
	}
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	f.Name = name
	return f, nil
}

// leastWrite is the least that is written at a time: the slots of a small table are smaller.
const leastWrite = 1 << 20

func writeSlots(out *os.File, t *table.Table, slots []int, stop func() error) (*File, error) {
	f := new(File)
	var records []byte
	for i, slot := range slots {
		if err := stop(); err != nil {
			return nil, err
		}
		failpoint.Here("save rows")
		begin := len(records)
		var counts table.Counts
		var err error
		if records, counts, err = t.AppendRecords(records, slot); err != nil {
			return nil, err
		}
		own := records[begin:]
		f.Slots = append(f.Slots, Slot{slot, counts, crc32.Checksum(own, castagnoli)})
		f.Bytes += int64(len(own))
		if len(records) >= leastWrite || i == len(slots)-1 {
			if _, err := out.Write(records); err != nil {
				return nil, err
			}
			records = records[:0]
		}
	}
	return f, nil
}

// Commit makes the save that m describes the one of a directory, in which all files of m are. Then it removes those of
// earlier saves. One process at a time may save into a directory.
func Commit(dir string, m *Manifest) error {
	if err := m.check(); err != nil {
		return err
	}
	for i := range m.Files {
		f := &m.Files[i]
		if info, err := os.Stat(filepath.Join(dir, f.Name)); err != nil {
			return err
		} else if info.Size() != f.Bytes {
			return fmt.Errorf("%s has %d of its %d bytes", filepath.Join(dir, f.Name), info.Size(), f.Bytes)
		}
	}
	text, err := m.encode()
	if err != nil {
		return err
	}
	failpoint.Here("save manifest")
	if err := wholefile.Write(filepath.Join(dir, manifestName), text); err != nil {
		return err
	}
	failpoint.Here("saved")
	removeOthers(dir, m)
	return nil
}

// removeOthers removes the files with rows of other saves than m. What it cannot remove harms nothing but the space.
func removeOthers(dir string, m *Manifest) {
	names := map[string]bool{}
	for i := range m.Files {
		names[m.Files[i].Name] = true
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if fileName().MatchString(e.Name()) && !names[e.Name()] {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
