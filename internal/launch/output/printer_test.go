package output

import (
	"syscall"
	"testing"
)

// A reader does not see lines that could not be written.
func TestUnwrittenLinesAreNotSeen(t *testing.T) {
	broken := NewPrinter("stderr", refusing{}, nil, nil)
	broken.Write([]byte("trouble\n"))
	broken.Flush()
	if broken.Sees(1) {
		t.Error("what could not be written is seen")
	}
}

// refusing is a writer like a full disk.
type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
