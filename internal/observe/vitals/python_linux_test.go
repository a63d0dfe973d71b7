package vitals

import (
	"testing"
	"unsafe"
)

// TestLinesOfInstructions reads tables that interpreters have made of
//
//	def f(a):
//	    x = a
//
//	    for i in a:
//	        x += (i +
//	              a)
//	    return x
//
// with f at line 1, and compares them with what dis says there.
func TestLinesOfInstructions(t *testing.T) {
	for _, c := range []struct {
		what  string
		line  func(table []byte, first, at int) int
		table string
		at    map[int]int // instruction or, before 3.10, byte: line
	}{
		{"3.9", lineBefore310, "\x00\x01\x04\x02\x08\x01\x04\x01\x02\xff\x08\x02",
			map[int]int{0: 2, 4: 4, 12: 5, 16: 6, 18: 5, 26: 7}},
		{"3.10", line310, "\x04\x01\x08\x02\x04\x01\x02\x01\x08\xff\x04\x02",
			map[int]int{0: 2, 1: 2, 2: 4, 3: 4, 4: 4, 5: 4, 6: 5, 7: 5, 8: 6, 9: 5, 10: 5, 11: 5,
				12: 5, 13: 7, 14: 7}},
		{"3.11", line311, "\x80\x00\xd8\x08\x09\x80\x41\xe0\x0d\x0e\xf0\x00\x02\x05\x11\xf0\x00\x02" +
			"\x05\x11\x88\x01\xd8\x08" +
			"\x09\x88\x61\xd8\x0e\x0f\xf1\x03\x01\x0f\x10\xf1\x00\x01\x09\x11\x88\x01" +
			"\x88\x01\xe0\x0b\x0c\x80" +
			"\x48",
			map[int]int{0: 1, 1: 2, 2: 2, 3: 4, 4: 4, 5: 4, 6: 4, 7: 5, 8: 5, 9: 6, 10: 5, 11: 5,
				12: 5, 13: 5, 14: 5, 15: 5, 16: 7, 17: 7}},
		{"3.12", line311, "\x80\x00\xd8\x08\x09\x80\x41\xe0\x0d\x0e\xf2\x00\x02\x05\x11\x88\x01\xd8" +
			"\x08\x09\x88\x61\xd8\x0e" +
			"\x0f\xf1\x03\x01\x0f\x10\xf1\x00\x01\x09\x11\x89\x01\xf0\x03\x02\x05\x11" +
			"\xf0\x06\x00\x0c\x0d\x80" +
			"\x48",
			map[int]int{0: 1, 1: 2, 2: 2, 3: 4, 4: 4, 5: 4, 6: 4, 7: 4, 8: 5, 9: 5, 10: 6, 11: 5,
				12: 5, 13: 5, 14: 5, 15: 5, 16: 5, 17: 4, 18: 7, 19: 7}},
		{"3.13", line311, "\x80\x00\xd8\x08\x09\x80\x41\xe3\x0d\x0e\x88\x01\xd8\x08\x09\xd8\x0e\x0f" +
			"\xf1\x03\x01\x0f\x10\xf1" +
			"\x00\x01\x09\x11\x8a\x01\xf1\x03\x00\x0e\x0f\xf0\x06\x00\x0c\x0d\x80\x48",
			map[int]int{0: 1, 1: 2, 2: 2, 3: 4, 4: 4, 5: 4, 6: 4, 7: 4, 8: 5, 9: 6, 10: 5, 11: 5,
				12: 5, 13: 5, 14: 5, 15: 5, 16: 5, 17: 4, 18: 4, 19: 7, 20: 7}},
	} {
		for at, want := range c.at {
			if got := c.line([]byte(c.table), 1, at); got != want {
				t.Errorf("%s: instruction %d is in line %d, not %d", c.what, at, got, want)
			}
		}
	}
}

// FuzzLines checks that no table makes a reader fail or loop.
func FuzzLines(f *testing.F) {
	f.Add([]byte("\x80\x00\xf0\x1f\x7f\xe8"), 3)
	f.Fuzz(func(_ *testing.T, table []byte, at int) {
		for _, line := range []func([]byte, int, int) int{lineBefore310, line310, line311} {
			line(table, 1, at)
		}
	})
}

// TestGarbageIsNoStack points to what is no thread of Python.
func TestGarbageIsNoStack(t *testing.T) {
	memory := make([]uintptr, 4096)
	for i := range memory {
		memory[i] = uintptr(unsafe.Pointer(&memory[(i*7919)%len(memory)]))
	}
	for version := range layouts {
		for _, thread := range []uintptr{0, 1, 1 << 20, ^uintptr(0) - 50, uintptr(unsafe.Pointer(&memory[0]))} {
			for _, ident := range []uintptr{0, memory[176/8], memory[152/8], memory[136/8]} {
				p := Python{Version: version, Thread: thread, Ident: ident, Code: memory[1], Str: memory[1],
					Bytes: memory[1]}
				if err := Offer(p, Frame{File: "a", Func: "b", Line: 1}); err == nil {
					t.Errorf("%v at %#x has a stack: %v", version, thread, Stack())
				}
			}
		}
	}
	if err := Offer(Python{Version: [2]int{2, 7}}, Frame{}); err == nil {
		t.Error("Python 2.7 is known")
	}
	if got := Stack(); got != nil {
		t.Errorf("%v", got)
	}
}
