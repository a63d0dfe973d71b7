package rendezvous

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every rank reads a value of every other rank, several times while a job starts. So the cost of a value decides how
// the start grows with the job, and frames of values are not JSON:
//
//	'v'  name  use  first  alike (0 or 1)  count  count × value
//	'z'  length of such a frame  the frame, deflated
//
// Numbers are uvarints; a name or value is its length and its bytes. What ranks say of themselves is mostly alike, so
// deflated values take a fifth of their size. The server deflates a frame once for all ranks.

// valuesPrefix and deflatedPrefix begin these frames. JSON begins with a brace.
const (
	valuesPrefix   = 'v'
	deflatedPrefix = 'z'
)

// leastDeflated is the shortest frame for which it is worth while to deflate it, in bytes.
const leastDeflated = 512

var errValues = errors.New("malformed frame of values")

// encodeValues is the body of a frame of values.
func encodeValues(m message) []byte {
	plain := appendValues(nil, m)
	if len(plain) < leastDeflated {
		return plain
	}
	var b bytes.Buffer
	b.Write(binary.AppendUvarint([]byte{deflatedPrefix}, uint64(len(plain))))
	z, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	z.Write(plain) // a Buffer takes everything
	z.Close()
	if b.Len() >= len(plain) {
		return plain
	}
	return b.Bytes()
}

// decodeValues reverses encodeValues. It allocates at most maxFrame bytes.
func decodeValues(body []byte) (message, error) {
	if body[0] == valuesPrefix {
		return readValues(body)
	}
	f := fields(body[1:])
	n, ok := f.number(true)
	if !ok || n == 0 || n > maxFrame {
		return message{}, errValues
	}
	plain := make([]byte, n)
	z := flate.NewReader(bytes.NewReader(f))
	if _, err := io.ReadFull(z, plain); err != nil {
		return message{}, fmt.Errorf("%w: %w", errValues, err)
	}
	if _, err := z.Read(make([]byte, 1)); err != io.EOF || plain[0] != valuesPrefix {
		return message{}, errValues
	}
	return readValues(plain)
}

func appendValues(b []byte, m message) []byte {
	b = append(b, valuesPrefix)
	b = appendBytes(b, []byte(m.Name))
	b = binary.AppendUvarint(b, m.Use)
	b = binary.AppendUvarint(b, uint64(m.First))
	alike := byte(0)
	if m.Alike {
		alike = 1
	}
	b = append(b, alike)
	b = binary.AppendUvarint(b, uint64(len(m.Values)))
	for _, v := range m.Values {
		b = appendBytes(b, v)
	}
	return b
}

func appendBytes(b, p []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

// readValues reverses appendValues. The values are parts of body; an empty value is not nil.
func readValues(body []byte) (m message, err error) {
	r := fields(body[1:])
	m.Type = typeValues
	name, ok := r.bytes()
	m.Name = string(name)
	if m.Use, ok = r.number(ok); !ok {
		return m, errValues
	}
	first, ok := r.number(ok)
	alike, ok := r.number(ok)
	count, ok := r.number(ok)
	if !ok || first > 1<<31 || alike > 1 || count > uint64(len(r)) { // each value takes a byte at least
		return m, errValues
	}
	m.First, m.Alike = int(first), alike == 1
	m.Values = make([][]byte, count)
	for i := range m.Values {
		if m.Values[i], ok = r.bytes(); !ok {
			return m, errValues
		}
	}
	if len(r) > 0 {
		return m, errValues
	}
	return m, nil
}

// fields is the unread rest of a frame.
type fields []byte

// number reads a number, if ok: everything before it was valid.
func (f *fields) number(ok bool) (uint64, bool) {
	n, used := binary.Uvarint(*f)
	if !ok || used <= 0 {
		return 0, false
	}
	*f = (*f)[used:]
	return n, true
}

func (f *fields) bytes() ([]byte, bool) {
	n, ok := f.number(true)
	if !ok || n > uint64(len(*f)) {
		return nil, false
	}
	p := (*f)[:n:n]
	*f = (*f)[n:]
	return p, true
}
