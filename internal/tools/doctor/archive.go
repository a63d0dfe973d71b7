package doctor

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// archive is the file of a bundle. Its name decides its format.
type archive struct {
	add   func(name string, text []byte) error
	close func() error
	// read is a shell command that prints all texts of the file %s.
	read string
}

// form returns the function that makes the format for a name.
func form(file string) (func(w io.Writer, at time.Time) archive, error) {
	switch name := strings.ToLower(filepath.Base(file)); {
	case strings.HasSuffix(name, ".zip"):
		return zipped, nil
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"), filepath.Ext(name) == "":
		return tarred, nil
	}
	return nil, fmt.Errorf("--bundle %s: a name that ends in .tar.gz, .tgz or .zip is needed", file)
}

func tarred(w io.Writer, at time.Time) archive {
	packed := gzip.NewWriter(w)
	all := tar.NewWriter(packed)
	return archive{
		add: func(name string, text []byte) error {
			h := tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: at}
			err := all.WriteHeader(&h)
			if err == nil {
				_, err = all.Write(text)
			}
			return err
		},
		close: func() error { return errors.Join(all.Close(), packed.Close()) },
		read:  "tar -xzOf %s",
	}
}

func zipped(w io.Writer, at time.Time) archive {
	all := zip.NewWriter(w)
	return archive{
		add: func(name string, text []byte) error {
			h := zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
			h.SetMode(0o600)
			f, err := all.CreateHeader(&h)
			if err == nil {
				_, err = f.Write(text)
			}
			return err
		},
		close: all.Close,
		read:  "unzip -p %s",
	}
}
