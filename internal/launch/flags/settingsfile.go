package flags

import (
	"fmt"
	"io"
	"os"
	"time"
)

// maxSettings is the most bytes of a file that a user names. Even a hostfile of a hundred thousand hosts is smaller.
const maxSettings = 4 << 20

// settingsPatience is the most time for reading: a pipe may have nobody at its other end, and a file may be on a slow
// network. Tests shorten it.
var settingsPatience = 10 * time.Second

// readSettings reads a file that a user has named, or a pipe such as a shell's <(command). The error names the file if
// it cannot be read, is too large, or does not end in time.
func readSettings(path string) ([]byte, error) {
	type content struct {
		text []byte
		err  error
	}
	read := make(chan content, 1)
	go func() { // opening a pipe waits for its other end, and nothing can interrupt that
		text, err := readAtMost(path, maxSettings)
		read <- content{text, err}
	}()
	select {
	case c := <-read:
		return c.text, c.err
	case <-time.After(settingsPatience):
		return nil, fmt.Errorf("%s: it has not come to its end within %v: either nobody writes into this pipe, or "+
			"the host of this file does not answer", path, settingsPatience)
	}
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: it is a directory, and a file is needed", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s: it has more than %d MiB, which is no file of this kind", path, most>>20)
	}
	return text, nil
}
