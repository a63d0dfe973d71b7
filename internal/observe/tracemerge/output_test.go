package tracemerge

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
	"syscall"
	"testing"
)

// merges merges an invented job into the output.
func merges(t *testing.T, output string) error {
	t.Helper()
	_, err := Merge(Options{Files: small().files(t), Output: output})
	return err
}

// isTrace checks that text is a whole trace.
func isTrace(t *testing.T, text []byte) {
	t.Helper()
	var trace struct{ TraceEvents []json.RawMessage }
	if err := json.Unmarshal(text, &trace); err != nil || len(trace.TraceEvents) < 100 {
		t.Errorf("%d bytes of output with %d events: %v", len(text), len(trace.TraceEvents), err)
	}
}

// modeOf is the mode of what has this name itself.
func modeOf(t *testing.T, name string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

// A link stays a link, and the file that it leads to is replaced, or made.
func TestOutputByALink(t *testing.T) {
	for _, there := range []bool{true, false} {
		dir := t.TempDir()
		file, link := filepath.Join(dir, "sub", "file"), filepath.Join(dir, "link")
		for _, err := range []error{os.Mkdir(filepath.Dir(file), 0o755), os.Symlink("sub/second", link),
			os.Symlink("file", filepath.Join(dir, "sub", "second"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if there {
			if err := os.WriteFile(file, []byte("before"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := merges(t, link); err != nil {
			t.Fatal(err)
		}
		if modeOf(t, link)&os.ModeSymlink == 0 || modeOf(t, filepath.Join(dir, "sub", "second"))&os.ModeSymlink == 0 {
			t.Error("the links are gone")
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		isTrace(t, text)
	}
	circle := filepath.Join(t.TempDir(), "circle")
	if err := os.Symlink("circle", circle); err != nil {
		t.Fatal(err)
	}
	if err := merges(t, circle); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a circle of links: %v", err)
	}
}

// A pipe is written to, and stays one.
func TestOutputIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that no open waits
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	read := readTrace(reader)
	if err := merges(t, pipe); err != nil {
		t.Fatal(err)
	}
	if modeOf(t, pipe)&os.ModeNamedPipe == 0 {
		t.Error("the pipe is gone")
	}
	isTrace(t, <-read)
}

// The links of /proc lead to a pipe without a name.
func TestOutputIntoADescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	read := readTrace(r)
	if err := merges(t, fmt.Sprint("/proc/self/fd/", w.Fd())); err != nil {
		t.Fatal(err)
	}
	isTrace(t, <-read)
}

// readTrace reads one line after the other up to the trace's last one.
func readTrace(r io.Reader) <-chan []byte {
	read := make(chan []byte, 1)
	go func() {
		var text []byte
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadBytes('\n')
			text = append(text, line...)
			if err != nil || bytes.HasPrefix(line, []byte("],")) {
				read <- text
				return
			}
		}
	}()
	return read
}

// A device stays a device. The test makes a copy of /dev/full, so that nothing befalls the machine's own.
func TestOutputIntoADevice(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full")
	if err := syscall.Mknod(full, syscall.S_IFCHR|0o600, 1<<8|7); err != nil {
		t.Skip("no device can be made here: ", err)
	}
	if f, err := os.OpenFile(full, os.O_WRONLY, 0); err != nil {
		t.Skip("no device can be used here: ", err)
	} else {
		f.Close()
	}
	if err := merges(t, full); !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), full+": ") {
		t.Errorf("a full device: %v", err)
	}
	if modeOf(t, full)&os.ModeCharDevice == 0 {
		t.Error("the device is gone")
	}
}
