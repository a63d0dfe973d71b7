package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A file of any content and any name is skipped with a reason, unless Save has written it; then the older commit beside
// it is found.
func FuzzNewest(f *testing.F) {
	whole := append(header(7, []byte("state")), "state"...)
	f.Add("commit-0000000000000000007.checkpoint", whole)
	f.Add("commit-0000000000000000007.checkpoint", whole[:len(whole)-1])
	f.Add("commit-0000000000000000008.checkpoint", whole)
	f.Add("commit-9999999999999999999.checkpoint", append(header(1<<62, nil), 0))
	f.Add("commit-0000000000000000007.checkpoint", append([]byte(magic), bytes.Repeat([]byte{0xff}, 48)...))
	f.Add("commit-7.checkpoint.partial", []byte{})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if filepath.Base(name) != name || len(name) > 200 || name == "." || name == ".." ||
			bytes.ContainsRune([]byte(name), 0) || name == oldest {
			return
		}
		if err := Save(dir, 0, []byte("old")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if os.WriteFile(path, content, 0o600) != nil {
			return // it cannot be the name of a file
		}
		defer os.Remove(path)
		skipped := 0
		number, data, err := Newest(dir, func(err error) { skipped++ })
		switch {
		case err != nil:
			t.Error(err)
		case number == 0 && string(data) == "old":
			if n, ok := parse(name); ok && n > 0 && skipped != 1 {
				t.Errorf("%s: %d files are skipped", name, skipped)
			}
		case !bytes.Equal(content, append(header(number, data), data...)):
			t.Errorf("%s of %x is taken for commit %d, %x", name, content, number, data)
		}
	})
}

const oldest = "commit-0000000000000000000.checkpoint"
