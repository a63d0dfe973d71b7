package meet

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

var _ Sweeper = (*file)(nil)

// Sweep removes this user's files that processes of this host have left in the directory when they were killed, and
// files that are too old for anybody. It leaves files alone of which it cannot tell, and ignores errors.
func (f *file) Sweep() {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		if rest, temp := strings.CutPrefix(e.Name(), tempPrefix); temp {
			by, _, _ := strings.Cut(rest, "-")
			info, err := os.Lstat(path)
			if err == nil && info.Mode().IsRegular() && ours(info) && (writer(by).dead() ||
				time.Since(info.ModTime()) > maxAge) {
				os.Remove(path) // nobody else uses this name
			}
		} else if strings.HasPrefix(e.Name(), filePrefix) {
			f.remove(path, left)
		}
	}
	f.leave()
}

// left reports that nobody will withdraw the letter.
func left(there letter) bool { return there.Writer.dead() || time.Since(there.written) > maxAge }

// remove removes a file for which goes returns true, but not another one that somebody puts in its place meanwhile.
func (f *file) remove(path string, goes func(there letter) bool) {
	if there, err := read(path); err != nil || !goes(there) {
		return
	}
	aside := filepath.Join(f.dir, tempPrefix+string(writerOf(os.Getpid()))+"-"+rand.Text())
	if os.Rename(path, aside) != nil {
		return // somebody else has removed it
	}
	if there, err := read(aside); err == nil && !goes(there) {
		os.Link(aside, path) // back to its place, unless a newer file is there already
	}
	os.Remove(aside)
}

// leave removes a fleeting directory if it is empty. A process that was about to write there makes it again.
func (f *file) leave() {
	if f.fleeting {
		syscall.Rmdir(f.dir)
	}
}
