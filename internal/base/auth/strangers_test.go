package auth

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr   string
	closed bool
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.addr), Port: 9} }
func (f *from) Close() error         { f.closed = true; return nil }

// A crowd from one address displaces its own connections, the oldest first, and not those from another address.
func TestLobby(t *testing.T) {
	l := NewLobby(4)
	ours := &from{addr: "10.0.0.1"}
	l.Enter(ours)
	var crowd []*from
	for range 10 {
		c := &from{addr: "10.0.0.9"}
		crowd = append(crowd, c)
		l.Enter(c)
	}
	for i, c := range crowd {
		if c.closed != (i < 7) {
			t.Errorf("number %d of the crowd: closed %v", i, c.closed)
		}
	}
	if l.Len() != 4 || ours.closed || !l.Leave(ours) || l.Leave(ours) || l.Leave(crowd[0]) || !l.Leave(crowd[9]) ||
		l.Len() != 2 {
		t.Errorf("%d are there; ours closed %v", l.Len(), ours.closed)
	}
	l.Close()
	late := &from{addr: "10.0.0.1"}
	l.Enter(late)
	if !crowd[8].closed || !late.closed || l.Len() != 0 {
		t.Error("open after Close")
	}
}

func TestKnocks(t *testing.T) {
	var lines []string
	var mu sync.Mutex
	told := make(chan struct{}, 9)
	k := NewKnocks(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, text)
		told <- struct{}{}
	})
	k.pause = 20 * time.Millisecond
	secret := errors.New("the secret itself")
	k.Note(&from{addr: "10.0.0.1"}, fmt.Errorf("x: %w", ErrProof))
	<-told
	for range 100 {
		k.Note(&from{addr: "10.0.0.2"}, fmt.Errorf("x: %w", ErrForeign))
	}
	k.Note(&from{addr: "10.0.0.3"}, fmt.Errorf("x: %w", ErrProof))
	k.Note(&from{addr: "10.0.0.3"}, os.ErrDeadlineExceeded)
	k.Note(&from{addr: "10.0.0.4"}, errLeft)
	k.Note(&from{addr: "10.0.0.5"}, secret)
	<-told
	for i := range 40 { // more addresses than a line names
		k.Note(&from{addr: fmt.Sprintf("10.1.0.%d", i)}, io.EOF)
	}
	k.Close()
	k.Note(&from{addr: "10.0.0.1"}, ErrProof)
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(lines, "\n")
	for _, want := range []string{"10.0.0.1: a wrong proof", "10.0.0.2: 100× something else",
		"10.0.0.3: 1× a wrong proof, 1× no proof in time", "10.0.0.5: the connection broke", "elsewhere: 32× it left"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if strings.Contains(all, "10.0.0.4") || strings.Contains(all, "secret itself") || len(lines) > 4 {
		t.Errorf("%d lines\n%s", len(lines), all)
	}
	var none *Knocks
	none.Note(&from{}, io.EOF)
	none.Close()
}

// A proof on one connection proves nothing on another, even with the same secret and hello.
func TestProofsCannotBeMoved(t *testing.T) {
	a, b := pipe(t)
	c, d := pipe(t)
	first, second := accept(b, key), accept(d, key)
	taken := &recorder{Conn: a}
	finish, err := Begin(taken, key, []byte("1 to 2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(c, key, []byte("1 to 2")); err != nil {
		t.Fatal(err)
	}
	taken.sent.Reset()
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	c.Write(taken.sent.Bytes())
	if got := <-first; got.err != nil {
		t.Error(got.err)
	}
	if got := <-second; !errors.Is(got.err, ErrProof) {
		t.Errorf("the proof of another connection: %v", got.err)
	}
}

// Begin alone proves nothing about its caller: the acceptor waits for the proof.
func TestBeginAloneProvesNothing(t *testing.T) {
	a, b := pipe(t)
	done := accept(b, key)
	if _, err := Begin(a, key, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if got := <-done; got.hello != nil || !errors.Is(got.err, errLeft) {
		t.Errorf("%q, %v", got.hello, got.err)
	}
}
