package timeline

import (
	"bytes"
	"io"
)

// arrayFile is a file with a growing JSON array. It is valid at any moment at which the process may be killed. It is
//
//	[ record, record, … blanks … ]
//
// and a batch of records takes the place of blanks. A write to a file is not atomic: when the process is killed, the
// kernel may stop between two pages. So no record, with the comma before it, crosses a boundary between blocks.
// Whichever blocks of a batch were written, they end with a whole record.
//
// Blanks are added in large pieces. A full disk shows itself then, and the content of the file stays valid. There is
// one weak moment: between the two writes of grow that move the bracket, and likewise in close, the bracket is missing,
// which viewers forgive. A record longer than a block (because its tensor's name is long) is invalid while it is
// written.
//
// Not safe for concurrent use.
type arrayFile struct {
	f     file
	batch []byte // records to be written at position at
	at    int64  // where the blanks begin
	end   int64  // where the bracket is, which is the last byte of a block
	comma bool   // there is a record, so the next one needs a comma
}

// file is the part of os.File that an arrayFile uses.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

const (
	block = 4096 // no system has smaller pages

	minGrowth = 64 << 10
	maxGrowth = 4 << 20
	maxBatch  = 64 << 10 // bytes that add keeps before it writes
)

var blanks = bytes.Repeat([]byte{' '}, minGrowth)

// newArrayFile writes an empty array to f, which must be empty. It owns f if there is no error.
func newArrayFile(f file) (*arrayFile, error) {
	first := bytes.Repeat([]byte{' '}, block)
	first[0], first[block-1] = '[', ']'
	if _, err := f.WriteAt(first, 0); err != nil {
		return nil, err
	}
	return &arrayFile{f: f, at: 1, end: block - 1}, nil
}

// add appends a record, without newlines, to the batch. It copies record.
func (a *arrayFile) add(record []byte) error {
	need := len(record) + len(",\n")
	pos := a.at + int64(len(a.batch))
	if room := int(block - pos%block); room < need && need <= block {
		a.batch = append(a.batch, blanks[:room]...)
	}
	if a.comma {
		a.batch = append(a.batch, ',')
	}
	a.comma = true
	a.batch = append(a.batch, '\n')
	a.batch = append(a.batch, record...)
	if len(a.batch) >= maxBatch {
		return a.flush()
	}
	return nil
}

// flush writes the batch.
func (a *arrayFile) flush() error {
	if len(a.batch) == 0 {
		return nil
	}
	if after := a.at + int64(len(a.batch)); after > a.end {
		if err := a.grow(after); err != nil {
			return err
		}
	}
	if _, err := a.f.WriteAt(a.batch, a.at); err != nil {
		return err
	}
	a.at += int64(len(a.batch))
	a.batch = a.batch[:0]
	return nil
}

// grow moves the bracket to after, or beyond it.
func (a *arrayFile) grow(after int64) error {
	end := after + min(max(after, minGrowth), maxGrowth)
	end += block - 1 - end%block
	for pos := a.end + 1; pos <= end; { // blanks behind the bracket are allowed
		n, err := a.f.WriteAt(blanks[:min(end+1-pos, int64(len(blanks)))], pos)
		if err != nil {
			return err
		}
		pos += int64(n)
	}
	if _, err := a.f.WriteAt([]byte{' '}, a.end); err != nil {
		return err
	}
	if _, err := a.f.WriteAt([]byte{']'}, end); err != nil {
		return err
	}
	a.end = end
	return nil
}

// close writes the batch, removes the blanks and closes the file. After an error of another method, call abandon
// instead.
func (a *arrayFile) close() error {
	err := a.flush()
	if err == nil {
		err = a.f.Truncate(a.at)
	}
	if err == nil {
		_, err = a.f.WriteAt([]byte("\n]\n"), a.at)
	}
	if e := a.f.Close(); err == nil {
		err = e
	}
	return err
}

// abandon closes the file as it is.
func (a *arrayFile) abandon() { a.f.Close() }
