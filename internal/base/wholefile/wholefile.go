// Package wholefile writes files that are complete or absent, also after a crash of the host.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Partial is the suffix of a file that is being written.
const Partial = ".partial"

// Write makes parts, one after the other, the content of a file. When it returns nil, the file is on the disk. Until
// then an earlier file of the name stays. One process at a time may write a file.
func Write(name string, parts ...[]byte) error {
	if err := write(name+Partial, parts); err != nil {
		os.Remove(name + Partial)
		return err
	}
	if err := os.Rename(name+Partial, name); err != nil {
		os.Remove(name + Partial)
		return err
	}
	return SyncDir(filepath.Dir(name))
}

func write(name string, parts [][]byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			f.Close()
			return err
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncDir makes new and renamed files of a directory survive a crash of the host.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
