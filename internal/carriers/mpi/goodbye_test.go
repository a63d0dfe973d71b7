//go:build cgo && linux

package mpi

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process manager gets the last word if MPI has left its connection open. Nothing goes to another file that has the
// connection's number.
func TestGoodbye(t *testing.T) {
	pair := func() [2]int {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
		return p
	}
	heard := func(fd int) string {
		text := make([]byte, 100)
		n, _, err := unix.Recvfrom(fd, text, unix.MSG_DONTWAIT)
		if err != nil {
			return ""
		}
		return string(text[:n])
	}

	open := pair()
	t.Setenv("PMI_FD", strconv.Itoa(open[0]))
	m := connectedManager()
	if m == nil {
		t.Fatal("the connection is not seen")
	}
	if _, err := unix.Write(open[1], []byte("cmd=finalize_ack rc=0\n")); err != nil { // sent in advance
		t.Fatal(err)
	}
	m.goodbye()
	if said := heard(open[1]); said != "cmd=finalize\n" {
		t.Errorf("the process manager hears %q", said)
	}

	other := pair()
	if err := unix.Dup3(other[0], open[0], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	m.goodbye()
	if said := heard(other[1]); said != "" {
		t.Errorf("another socket is told %q", said)
	}

	gone := pair()
	t.Setenv("PMI_FD", strconv.Itoa(gone[0]))
	m = connectedManager()
	unix.Shutdown(gone[1], unix.SHUT_RDWR)
	m.goodbye() // returns, and no SIGPIPE ends the process

	for _, none := range []string{"", "x", "-1", "1000000"} {
		t.Setenv("PMI_FD", none)
		connectedManager().goodbye()
	}
}

// The barrier is passed when the process manager says so, in however many pieces, and not if it is gone.
func TestBarrier(t *testing.T) {
	for _, c := range []struct {
		says   []string
		passed bool
	}{
		{[]string{"cmd=barrier_out rc=0\n"}, true},
		{[]string{"cmd=put_result rc=0\ncmd=barr", "ier_out", "\n"}, true},
		{[]string{"cmd=barrier_out"}, false},
		{nil, false},
	} {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("PMI_FD", strconv.Itoa(p[0]))
		m := connectedManager()
		go func() {
			heard := make([]byte, 100)
			if n, err := unix.Read(p[1], heard); err != nil || string(heard[:n]) != "cmd=barrier_in\n" {
				t.Errorf("the process manager hears %q, %v", heard[:max(0, n)], err)
			}
			for _, text := range c.says {
				unix.Write(p[1], []byte(text))
				time.Sleep(5 * time.Millisecond)
			}
			unix.Close(p[1])
		}()
		if passed := m.barrier(); passed != c.passed {
			t.Errorf("after %q: %v", c.says, passed)
		}
		unix.Close(p[0])
	}
}
