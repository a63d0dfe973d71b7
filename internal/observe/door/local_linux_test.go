package door

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestLocal connects to this process, and to a socket that pretends to be another process's.
func TestLocal(t *testing.T) {
	l, err := ListenLocal(4)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names, err := Locals()
	if err != nil || names[os.Getpid()] == "" {
		t.Fatalf("%v, %v", names, err)
	}
	served := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				served <- err
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	c, err := DialLocal(os.Getpid(), names[os.Getpid()], time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if text, err := io.ReadAll(c); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}

	false1, err := net.Listen("unix", localPrefix+"1/1")
	if err != nil {
		t.Skip(err)
	}
	defer false1.Close()
	names, err = Locals()
	if err != nil || names[1] != "" || names[os.Getpid()] == "" { // the kernel says which process owns a socket
		t.Errorf("%v, %v", names, err)
	}
	if _, err := DialLocal(1, localPrefix+"1/1", time.Minute); !errors.Is(err, ErrOther) {
		t.Errorf("this process passes for process 1: %v", err)
	}
}
