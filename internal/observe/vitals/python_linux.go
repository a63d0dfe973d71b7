package vitals

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// interpreter reads the stack of a Python thread out of this process's own memory, by system calls, which fail where a
// pointer would fault. So it can look at any moment, though the interpreter frees frames meanwhile. All that it reads
// is checked: objects by the addresses of their types, lengths by limits.
type interpreter struct {
	Python
	layout
	pid int
}

// layout says where fields are in the structures of a version of CPython, in bytes, on 64-bit machines. It is the same
// in all releases of a minor version.
type layout struct {
	ident   uintptr // PyThreadState.thread_id
	cframe  uintptr // PyThreadState.cframe, which points to what points to the frame; 0: there is none
	current uintptr // to the innermost frame: in the thread's state or in its cframe

	// Of a frame.
	previous, code, at uintptr
	owner              uintptr // 0: frames have none
	// Of a code object.
	file, name, firstLine, lines uintptr
	instructions                 uintptr // 0: at is an index

	ascii, wide uintptr // sizes of the heads of texts
	line        func(table []byte, first, at int) int
}

// layouts are those of the versions of which headers were read: 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0.
var layouts = map[[2]int]layout{
	{3, 9}: {ident: 176, current: 24, previous: 24, code: 32, at: 104, file: 104, name: 112, firstLine: 40, lines: 120,
		ascii: 48, wide: 72, line: lineBefore310},
	{3, 10}: {ident: 176, current: 24, previous: 24, code: 32, at: 96, file: 104, name: 112, firstLine: 40, lines: 120,
		ascii: 48, wide: 72, line: line310},
	{3, 11}: {ident: 152, cframe: 56, current: 8, previous: 48, code: 32, at: 56, owner: 69, file: 112, name: 128,
		firstLine: 72, lines: 136, instructions: 184, ascii: 48, wide: 72, line: line311},
	{3, 12}: {ident: 136, cframe: 56, current: 0, previous: 8, code: 0, at: 56, owner: 70, file: 112, name: 128,
		firstLine: 68, lines: 136, instructions: 192, ascii: 40, wide: 56, line: line311},
	{3, 13}: {ident: 152, current: 72, previous: 8, code: 0, at: 56, owner: 70, file: 112, name: 128,
		firstLine: 68, lines: 136, instructions: 200, ascii: 40, wide: 56, line: line311},
}

const (
	mostHead    = 208       // bytes of a frame or code object in which the fields above are
	mostText    = 4096      // bytes of a path or name that are read
	mostLines   = 256 << 10 // bytes of a table of line numbers
	ownedByC    = 3         // the owner of a frame that is none of the program's
	textState   = 32        // where a text has its state, and its length
	textLength  = 16
	bytesSize   = 16
	bytesValue  = 32
	typeAddress = 8
)

func newInterpreter(p Python) (*interpreter, error) {
	l, known := layouts[p.Version]
	if !known || unsafe.Sizeof(uintptr(0)) != 8 {
		return nil, fmt.Errorf("the stacks of Python %d.%d are not known", p.Version[0], p.Version[1])
	}
	return &interpreter{p, l, os.Getpid()}, nil
}

// read fills b from an address of this process. False if not all of it is there, or the system forbids it.
func (i *interpreter) read(at uintptr, b []byte) bool {
	if at < 4096 || at+uintptr(len(b)) < at {
		return false
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(i.pid, local, []unix.RemoteIovec{{Base: at, Len: len(b)}}, 0)
	return err == nil && n == len(b)
}

func word(b []byte, at uintptr) uintptr { return uintptr(binary.NativeEndian.Uint64(b[at:])) }

func (i *interpreter) pointer(at uintptr) uintptr {
	var b [8]byte
	if !i.read(at, b[:]) {
		return 0
	}
	return word(b[:], 0)
}

// place is where a frame is: in a code object, at an instruction.
type place struct{ code, at uintptr }

// stack is Stack.
func (i *interpreter) stack() []Frame {
	if i.pointer(i.Thread+i.ident) != i.Ident {
		return nil // the thread has ended
	}
	from := i.Thread
	if i.cframe > 0 {
		from = i.pointer(i.Thread + i.cframe)
	}
	var inward []place
	var b [mostHead]byte
	size := max(i.previous+8, i.layout.code+8, i.at+4, i.owner+1)
	f := i.pointer(from + i.current)
	for range mostFrames { // a torn chain can be a ring
		if f == 0 || !i.read(f, b[:size]) {
			break
		}
		f = word(b[:], i.previous)
		if i.owner > 0 && b[i.owner] >= ownedByC {
			continue
		}
		p := place{code: word(b[:], i.layout.code), at: word(b[:], i.at)}
		if i.instructions == 0 {
			p.at &= math.MaxUint32 // a C int
		}
		inward = append(inward, p)
	}
	var frames []Frame
	for _, p := range told(inward) {
		if f, ok := i.frame(p); ok {
			frames = append(frames, f)
		}
	}
	return frames
}

// frame says what a place is.
func (i *interpreter) frame(p place) (f Frame, ok bool) {
	var c [mostHead]byte
	if !i.read(p.code, c[:max(i.lines, i.name)+8]) || word(c[:], typeAddress) != i.Code {
		return f, false
	}
	file, ok1 := i.text(word(c[:], i.file))
	name, ok2 := i.text(word(c[:], i.name))
	if !ok1 || !ok2 {
		return f, false
	}
	at := int(int32(p.at))
	if i.instructions > 0 {
		at = int(p.at-p.code-i.instructions) / 2
	}
	first := int(int32(binary.NativeEndian.Uint32(c[i.firstLine:])))
	return Frame{short(file), name, i.line(i.table(word(c[:], i.lines)), first, at)}, true
}

// short is the end of a path: a file and its folder.
func short(path string) string {
	if n := strings.LastIndexByte(path, '/'); n > 0 {
		if n = strings.LastIndexByte(path[:n], '/'); n >= 0 {
			return path[n+1:]
		}
	}
	return path
}

// text reads a str.
func (i *interpreter) text(at uintptr) (string, bool) {
	var head [72]byte
	if !i.read(at, head[:i.ascii]) || word(head[:], typeAddress) != i.Str {
		return "", false
	}
	length := word(head[:], textLength)
	state := binary.NativeEndian.Uint32(head[textState:]) // in bits: interned 2, kind 3, compact, ascii
	kind, compact, ascii := state>>2&7, state>>5&1 == 1, state>>6&1 == 1
	if !compact || length > mostText || kind != 1 && kind != 2 && kind != 4 {
		return "", false
	}
	from := i.wide
	if ascii {
		from = i.ascii
	}
	if length == 0 {
		return "", true
	}
	b := make([]byte, length*uintptr(kind))
	if !i.read(at+from, b) {
		return "", false
	}
	if ascii {
		return string(b), true
	}
	var runes []rune
	for k := 0; k < len(b); k += int(kind) {
		r := rune(b[k])
		switch kind {
		case 2:
			r = rune(binary.NativeEndian.Uint16(b[k:]))
		case 4:
			r = rune(binary.NativeEndian.Uint32(b[k:]))
		}
		if !utf8.ValidRune(r) {
			r = utf8.RuneError
		}
		runes = append(runes, r)
	}
	return string(runes), true
}

// table reads a bytes object, nil if it is none or too long.
func (i *interpreter) table(at uintptr) []byte {
	var head [bytesValue]byte
	if !i.read(at, head[:]) || word(head[:], typeAddress) != i.Bytes {
		return nil
	}
	n := word(head[:], bytesSize)
	if n == 0 || n > mostLines {
		return nil
	}
	b := make([]byte, n)
	if !i.read(at+bytesValue, b) {
		return nil
	}
	return b
}

// lineBefore310 finds the line of the instruction at a byte, in pairs of deltas: bytes, lines.
func lineBefore310(table []byte, line, at int) int {
	address := 0
	for k := 0; k+1 < len(table); k += 2 {
		if address += int(table[k]); address > at {
			break
		}
		line += int(int8(table[k+1]))
	}
	return line
}

// line310 finds the line of an instruction by its index. Each pair of deltas says how many bytes of code the line has
// that its second part leads to; -128 is no line.
func line310(table []byte, line, at int) int {
	at = max(0, 2*at)
	end := 0
	for k := 0; k+1 < len(table); k += 2 {
		end += int(table[k])
		if d := int8(table[k+1]); d != -128 {
			line += int(d)
		}
		if end > at {
			break
		}
	}
	return line
}

// line311 finds the line of an instruction by its index. An entry's first byte has its kind and how many instructions
// it is about; what follows depends on the kind, and only first bytes have the highest bit.
func line311(table []byte, line, at int) int {
	end := 0
	for k := 0; k < len(table); {
		kind, n := table[k]>>3&15, int(table[k]&7)+1
		k++
		switch {
		case kind == 15: // no line
		case kind >= 13: // with a delta of any size
			d, shift := 0, 0
			for m := k; m < len(table) && shift < 32; m++ {
				d |= int(table[m]&63) << shift
				if shift += 6; table[m]&64 == 0 {
					break
				}
			}
			if d&1 == 1 {
				d = -d
			}
			line += d / 2
		case kind >= 10:
			line += int(kind) - 10
		}
		for k < len(table) && table[k]&0x80 == 0 {
			k++
		}
		if end += n; end > max(0, at) {
			break
		}
	}
	return line
}
