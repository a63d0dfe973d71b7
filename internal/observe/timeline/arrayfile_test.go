package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// memFile is a file in memory, written block by block as by a kernel. After each block it calls seen with the bytes
// that would be left if the process were killed there.
type memFile struct {
	data   []byte
	limit  int // size of the disk; 0: none
	seen   func(data []byte)
	closed bool
}

var errDiskFull = errors.New("disk full")

func (f *memFile) WriteAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		size := min(block-(int(at)+n)%block, len(p)-n)
		after := int(at) + n + size
		if after > len(f.data) {
			if f.limit > 0 && after > f.limit {
				return n, errDiskFull
			}
			f.data = append(f.data, make([]byte, after-len(f.data))...)
		}
		copy(f.data[int(at)+n:], p[n:n+size])
		n += size
		if f.seen != nil {
			f.seen(f.data)
		}
	}
	return n, nil
}

func (f *memFile) Truncate(size int64) error {
	f.data = f.data[:size]
	return nil
}

func (f *memFile) Close() error {
	f.closed = true
	return nil
}

// numbered is a record of size bytes, at least 12. It is invalid if it is cut.
func numbered(i, size int) []byte {
	head := fmt.Appendf(nil, `{"n":%d`, i)
	return append(append(head, bytes.Repeat([]byte{' '}, max(0, size-len(head)-1))...), '}')
}

// parseArray reads an array of numbered records as a strict reader does.
func parseArray(data []byte) (records []struct{ N int }, err error) {
	err = json.Unmarshal(data, &records)
	return records, err
}

// killedAnywhere makes f check, after each block of each write, that the file still has all its records, and is valid
// except perhaps for the bracket. It counts how often the bracket is missing.
func killedAnywhere(t *testing.T, f *memFile) (bracketless *int) {
	bracketless = new(int)
	looks, had := 0, 0
	f.seen = func(data []byte) {
		looks++
		records, err := parseArray(data)
		if err != nil {
			*bracketless++
			if records, err = parseArray([]byte(string(data) + "]")); err != nil {
				t.Fatalf("look %d: %v", looks, err)
			}
		}
		if len(records) < had {
			t.Fatalf("look %d: %d records, there had been %d", looks, len(records), had)
		}
		had = len(records)
	}
	return bracketless
}

// TestAnyPrefixOfAWriteIsValid looks at the file after each block of each write, with records of any length up to a
// block and batches of any length. All states must be valid, except that the bracket is missing once for each time the
// file grows.
func TestAnyPrefixOfAWriteIsValid(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := &memFile{}
	bracketless := killedAnywhere(t, f)
	a, err := newArrayFile(f)
	if err != nil {
		t.Fatal(err)
	}
	const n = 600
	grown := 0
	for i := range n {
		size := 12 + rng.IntN(40)
		if i%10 == 0 {
			size = 12 + rng.IntN(block-2-12+1)
		}
		end := a.end
		if err := a.add(numbered(100000+i, size)); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(30) == 0 {
			if err := a.flush(); err != nil {
				t.Fatal(err)
			}
		}
		if a.end != end {
			grown++
		}
	}
	f.seen = nil
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	if !f.closed {
		t.Error("not closed")
	}
	records, err := parseArray(f.data)
	if err != nil || len(records) != n {
		t.Fatalf("%d records at the end, want %d: %v", len(records), n, err)
	}
	for i, r := range records {
		if r.N != 100000+i {
			t.Fatalf("record %d is %d", i, r.N)
		}
	}
	if grown < 2 || *bracketless != grown {
		t.Errorf("the bracket was missing %d times, the file grew %d times", *bracketless, grown)
	}
}

// TestRecordAtTheEndOfABlock adds a record that leaves, or exceeds, the first block by a few bytes; the block ends with
// the bracket. Another record follows, in the same batch or in its own.
func TestRecordAtTheEndOfABlock(t *testing.T) {
	for left := -3; left <= 10; left++ {
		for _, batched := range []bool{false, true} {
			f := &memFile{}
			bracketless := killedAnywhere(t, f)
			a, err := newArrayFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for i, size := range []int{1000, block - len("[\n") - 1000 - len(",\n") - left, 2000} {
				if err := a.add(numbered(i, size)); err != nil {
					t.Fatal(err)
				}
				if !batched || i == 2 {
					if err := a.flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if records, err := parseArray(f.data); err != nil || len(records) != 3 || *bracketless != 1 {
				t.Fatalf("%d bytes left: %v, %v; %d times without bracket", left, records, err, *bracketless)
			}
		}
	}
}

// TestRecordLongerThanABlock: such a record cannot be safe while it is written, but must be right afterwards.
func TestRecordLongerThanABlock(t *testing.T) {
	f := &memFile{}
	a, err := newArrayFile(f)
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{12, block - 2, block - 1, block, 3 * block, minGrowth, maxBatch + 1, 12} {
		if err := a.add(numbered(i, size)); err != nil {
			t.Fatal(err)
		}
		if err := a.flush(); err != nil {
			t.Fatal(err)
		}
		if records, err := parseArray(f.data); err != nil || len(records) != i+1 {
			t.Fatalf("after a record of %d bytes: %v, %v", size, records, err)
		}
	}
}

// TestFullDisk expects an error, and a valid file with all flushed records.
func TestFullDisk(t *testing.T) {
	if _, err := newArrayFile(&memFile{limit: block - 1}); !errors.Is(err, errDiskFull) {
		t.Errorf("error %v", err)
	}
	f := &memFile{limit: 300_000}
	a, err := newArrayFile(f)
	if err != nil {
		t.Fatal(err)
	}
	flushed := 0
	for i := 0; err == nil; i++ {
		if err = a.add(numbered(i, 12)); err == nil {
			if err = a.flush(); err == nil {
				flushed++
			}
		}
	}
	if !errors.Is(err, errDiskFull) {
		t.Errorf("error %v", err)
	}
	a.abandon()
	if records, err := parseArray(f.data); err != nil || len(records) != flushed || flushed < 1000 {
		t.Errorf("%d records, %d were flushed: %v", len(records), flushed, err)
	}
}

// TestTraceEndsWhenTheDiskIsFull checks that the timeline is off for the engine at once, and that stop says why.
func TestTraceEndsWhenTheDiskIsFull(t *testing.T) {
	f := &memFile{limit: 200_000}
	tr, err := newTrace(f, 1<<10, nil)
	if err != nil {
		t.Fatal(err)
	}
	off := make(chan struct{})
	tr.off = func() { close(off) }
	go tr.run()
	for done := false; !done; {
		tr.put(opStart, "a", "ALLREDUCE", 0)
		select {
		case <-off:
			done = true
		default:
		}
	}
	if err := tr.stop(); !errors.Is(err, errDiskFull) {
		t.Errorf("error %v", err)
	}
	if !f.closed {
		t.Error("the file is open")
	}
	var records []record
	if err := json.Unmarshal(f.data, &records); err != nil {
		t.Error(err)
	}
	checkNested(t, records)
}
