package rendezvous

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// deflated is a frame that says it has n bytes when it is inflated.
func deflated(n int, plain []byte) []byte {
	var b bytes.Buffer
	b.Write(binary.AppendUvarint([]byte{deflatedPrefix}, uint64(n)))
	z, _ := flate.NewWriter(&b, flate.BestCompression)
	z.Write(plain)
	z.Close()
	return b.Bytes()
}

// What ranks say of themselves is mostly alike, so together it takes a third of its size or less. Values without
// likeness take no more than they have.
func TestValuesAreDeflated(t *testing.T) {
	alike := message{Type: typeValues, Name: "tcp", Use: 3, First: 256}
	for r := range 500 {
		alike.Values = append(alike.Values, fmt.Appendf(nil, `[{"o":[{"a":"10.0.%d.%d:%d"}]},{"p":%d}]`, r/200, r%200,
			30000+r*7919%20000, 30000+r*104729%20000))
	}
	few := message{Type: typeValues, Name: "few", Values: [][]byte{[]byte("a"), {}, []byte("b")}}
	for _, m := range []message{alike, few, {Type: typeValues, Name: "none", Values: [][]byte{}}} {
		frame, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if plain := len(appendValues(nil, m)); len(frame) > plain+4 || plain > 10000 && len(frame) > plain/3 {
			t.Errorf("%s: %d bytes as a frame of %d", m.Name, plain, len(frame))
		}
		got, err := decode(bytes.NewReader(frame))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %+v, %v", m.Name, got, err)
		}
	}
}

// A frame that inflates to something else than it says, or to too much, is refused.
func TestDeflatedFramesAreChecked(t *testing.T) {
	plain := appendValues(nil, message{Type: typeValues, Name: strings.Repeat("x", 200), Values: [][]byte{{1}, {2}}})
	good := deflated(len(plain), plain)
	if _, err := decodeValues(good); err != nil {
		t.Error(err)
	}
	for what, body := range map[string][]byte{
		"too short":    deflated(len(plain)+1, plain),
		"too long":     deflated(len(plain)-1, plain),
		"nothing":      deflated(0, nil),
		"a bomb":       deflated(1<<30, make([]byte, 1<<20)),
		"cut":          good[:len(good)-3],
		"no length":    {deflatedPrefix},
		"no stream":    append(binary.AppendUvarint([]byte{deflatedPrefix}, 9), "whatever"...),
		"twice":        deflated(len(good), good),
		"not values":   deflated(2, []byte("{}")),
		"wrong values": deflated(len(plain)-1, plain[:len(plain)-1]),
	} {
		if m, err := decodeValues(body); !errors.Is(err, errValues) {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
}
