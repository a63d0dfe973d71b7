package frtrace

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
)

// pickler writes Python values in protocol 2 of the pickle format. It writes only plain values, no classes, so that a
// reader that refuses classes can load them.
type pickler struct{ out bytes.Buffer }

// The opcodes, named as in Python's pickletools.
const (
	opProto     = 0x80
	opStop      = '.'
	opMark      = '('
	opNone      = 'N'
	opTrue      = 0x88
	opFalse     = 0x89
	opInt       = 'J' // 4 bytes
	opLong1     = 0x8a
	opUnicode   = 'X'
	opEmptyList = ']'
	opAppends   = 'e'
	opTuple2    = 0x86
	opEmptyDict = '}'
	opSetItems  = 'u'
)

// pair is a tuple of two.
type pair [2]any

// field is an item of a dict. A dict is written as fields, so that this program decides the order.
type field struct {
	key   string
	value any
}

// pickled is the pickle of a value made of nil, bool, int, int64, string, pair, []field (a dict) and []any (a list).
func pickled(v any) []byte {
	var p pickler
	p.out.Write([]byte{opProto, 2})
	p.write(v)
	p.out.WriteByte(opStop)
	return p.out.Bytes()
}

func (p *pickler) write(v any) {
	switch v := v.(type) {
	case nil:
		p.out.WriteByte(opNone)
	case bool:
		if v {
			p.out.WriteByte(opTrue)
		} else {
			p.out.WriteByte(opFalse)
		}
	case int:
		p.integer(int64(v))
	case int64:
		p.integer(v)
	case string:
		v = strings.ToValidUTF8(v, "\ufffd") // Python demands valid UTF-8
		p.out.WriteByte(opUnicode)
		p.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(v))))
		p.out.WriteString(v)
	case pair:
		p.write(v[0])
		p.write(v[1])
		p.out.WriteByte(opTuple2)
	case []any:
		p.out.WriteByte(opEmptyList)
		p.out.WriteByte(opMark)
		for _, e := range v {
			p.write(e)
		}
		p.out.WriteByte(opAppends)
	case []field:
		p.out.WriteByte(opEmptyDict)
		p.out.WriteByte(opMark)
		for _, f := range v {
			p.write(f.key)
			p.write(f.value)
		}
		p.out.WriteByte(opSetItems)
	default:
		panic("pickled: a value of another type")
	}
}

func (p *pickler) integer(n int64) {
	if math.MinInt32 <= n && n <= math.MaxInt32 {
		p.out.WriteByte(opInt)
		p.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(int32(n))))
		return
	}
	p.out.Write([]byte{opLong1, 8})
	p.out.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
