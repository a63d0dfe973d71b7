package flight

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Dump is the state of one rank.
type Dump struct {
	Job     string    `json:"job"` // the same on all ranks of a job
	Rank    int       `json:"rank"`
	Size    int       `json:"size"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Network string    `json:"network"`
	Time    time.Time `json:"time"`
	Failure string    `json:"failure,omitempty"`
	At      string    `json:"at,omitempty"` // where the rank's program is; empty if not known
	// Sets has the world ranks of each process set except the world.
	Sets    map[int][]int `json:"sets,omitempty"`
	Records []Record      `json:"records"`
}

// Who names the rank.
func (d *Dump) Who() string { return fmt.Sprintf("rank %d on %s (pid %d)", d.Rank, d.Host, d.PID) }

// Write writes the dump as JSON, record by record, so that a reader sees progress at once, however long the dump is.
func (d *Dump) Write(w io.Writer) error {
	head := *d
	head.Records = nil
	text, err := json.Marshal(&head)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 16<<10)
	encoder := json.NewEncoder(out)
	out.Write(bytes.TrimSuffix(text, []byte("null}"))) // Records is the last field, so its null is cut off
	before := byte('[')
	for i := range d.Records {
		out.WriteByte(before)
		if err := encoder.Encode(&d.Records[i]); err != nil {
			return err
		}
		before = ','
	}
	if len(d.Records) == 0 {
		out.WriteByte('[')
	}
	out.WriteString("]}\n")
	return out.Flush()
}

// maxDump is how many bytes of a file, or of a rank's answer, are read at most.
const maxDump = 64 << 20

// errTooLong is the error for a dump that is longer than what is read of it.
var errTooLong = errors.New("it is too long")

// Read reads a dump that Write has written. It trusts nothing in it, because anybody may have written it.
func Read(r io.Reader) (*Dump, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDump+1)) // everything first, because a rank does not wait for long
	if err == nil && len(text) > maxDump {
		err = fmt.Errorf("%w: more than %d MiB", errTooLong, maxDump>>20)
	}
	var d Dump
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return nil, fmt.Errorf("a dump: %w", err)
	}
	if d.Size < 1 || d.Rank < 0 || d.Rank >= d.Size {
		return nil, fmt.Errorf("a dump of rank %d of %d", d.Rank, d.Size)
	}
	return &d, nil
}

// Save writes the dump to a new file in dir, whole or not at all.
func (d *Dump) Save(dir string) (name string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".flight-*")
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, fmt.Sprintf("flight-%s-rank%d-pid%d.json", strings.ReplaceAll(d.Host, "/", "_"),
		d.Rank, d.PID))
	err = errors.Join(d.Write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return name, err
}

// Load reads the dumps of a directory.
func Load(dir string) ([]*Dump, error) {
	entries, err := os.ReadDir(dir) // not Glob, which would read the directory's own name as a pattern
	if err != nil {
		return nil, err
	}
	var dumps []*Dump
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), "flight-") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		name := filepath.Join(dir, e.Name())
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		d, err := Read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		dumps = append(dumps, d)
	}
	return dumps, nil
}

// Text writes the last n operations as lines for people.
func (d *Dump) Text(w io.Writer, n int) {
	for _, r := range d.Records[max(0, len(d.Records)-n):] {
		fmt.Fprintf(w, "  %-9s %s %q %s %v, submitted %s\n", r.Phase(), r.Op, r.Name, r.DType, r.Shape,
			clock(r.Submitted))
	}
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000") }
