package link

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// A dialler that has heard that it is welcome may be slow to answer, since it gets no core: the connection is still
// taken, because the dialler uses it.
func TestASlowAnswerIsAwaited(t *testing.T) {
	l, err := ListenEverywhere()
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("the secret of this job, 32 bytes")
	taken := make(chan string, 1)
	a := &Acceptor{Listener: l, Key: key, Limit: 4, Track: func(int, bool) {}, proof: 300 * time.Millisecond,
		Go:    func(f func()) bool { go f(); return true },
		Admit: func([]byte) error { return nil },
		Take:  func(hello []byte, c *Conn) { c.Close(); taken <- string(hello) }}
	a.Start(func(err error) { t.Error(err) })
	defer a.Close(0)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := auth.Initiate(c, key, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	var verdict [1]byte
	if _, err := io.ReadFull(c, verdict[:]); err != nil || verdict[0] != 0 {
		t.Fatalf("verdict %d, %v", verdict[0], err)
	}
	time.Sleep(2 * a.proof)
	if _, err := c.Write([]byte{begin}); err != nil {
		t.Fatal(err)
	}
	select {
	case hello := <-taken:
		if hello != "hello" {
			t.Errorf("taken with %q", hello)
		}
	case <-time.After(20 * time.Second):
		t.Error("the connection is not taken")
	}
}
