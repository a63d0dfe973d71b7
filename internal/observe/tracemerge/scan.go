package tracemerge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gorovod/gorovod/internal/base/regular"
)

// record is a record of a timeline.
type record struct {
	Ph   string          `json:"ph"`
	Name string          `json:"name"`
	TS   *int64          `json:"ts"`
	PID  int             `json:"pid"`
	Args json.RawMessage `json:"args"`
}

const (
	chunk = 256 << 10
	// mostLine is the most bytes of a record; a longer line is damaged.
	mostLine = 1 << 20
)

// scan calls f for each record of a file, and says how the file ended. A rank writes one record on a line, and fills
// the rest of a block with blanks. scan counts and skips lines that are no records; they come from a machine that went
// down, or from a copy that was cut.
func scan(path string, f func(*record) error) (torn bool, damaged int64, err error) {
	file, err := regular.Open(path)
	var broken *os.PathError
	switch {
	case errors.As(err, &broken):
		return false, 0, broken.Err
	case err != nil:
		return false, 0, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, chunk)
	if err := opening(in); err != nil {
		return false, 0, err
	}
	torn = true
	var rec record
	for n := 0; ; n++ {
		line, long, err := next(in)
		if err != nil && err != io.EOF {
			return false, 0, err
		}
		line = bytes.TrimRight(line, padding)
		if bytes.HasSuffix(line, []byte("]")) { // no record ends like this
			torn, line = false, bytes.TrimRight(line[:len(line)-1], padding)
		}
		if len(line) > 0 {
			rec = record{}
			switch {
			case long || line[0] != '{' || json.Unmarshal(line, &rec) != nil || rec.Ph == "":
				if err != io.EOF { // at the file's end the line is what is torn
					damaged++
				}
			default:
				if err := f(&rec); err != nil {
					return false, 0, err
				}
			}
		}
		if err == io.EOF {
			return torn, damaged, nil
		}
	}
}

// padding is the bytes between records. A machine that went down leaves zeros.
const padding = ", \t\r\n\x00"

// errEmpty: the file ends before its first bracket.
var errEmpty = errors.New("it is empty")

// opening reads the bracket with which a timeline begins.
func opening(in *bufio.Reader) error {
	for {
		c, err := in.ReadByte()
		switch {
		case err == io.EOF:
			return errEmpty
		case err != nil:
			return err
		case c == '[':
			return nil
		case c != ' ' && c != '\n' && c != '\r' && c != '\t':
			return fmt.Errorf("it is no timeline: it begins with %q, not with [", c)
		}
	}
}

// next reads a line, without the blanks around it. long: the line was too long, and is cut. At the file's end err is
// io.EOF.
func next(in *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		part = bytes.TrimLeft(part, "\x00")
		if len(line) == 0 {
			part = bytes.TrimLeft(part, padding)
		}
		if err == nil && len(line) == 0 {
			return part, false, nil
		}
		switch {
		case len(bytes.Trim(part, padding)) == 0: // a block of blanks
		case len(line)+len(part) <= mostLine:
			line = append(line, part...)
		default:
			long = true
		}
		if err != bufio.ErrBufferFull {
			return line, long, err
		}
	}
}
