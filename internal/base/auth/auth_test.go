package auth

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

var key = []byte("0123456789abcdef0123456789abcdef")

// pipe returns the two ends of a connection that cannot block a failing test for ever.
func pipe(t *testing.T) (a, b net.Conn) {
	t.Helper()
	a, b = net.Pipe()
	deadline := time.Now().Add(10 * time.Second)
	a.SetDeadline(deadline)
	b.SetDeadline(deadline)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

type accepted struct {
	hello []byte
	err   error
}

func accept(conn net.Conn, key []byte) <-chan accepted {
	c := make(chan accepted, 1)
	go func() {
		hello, err := Accept(conn, key)
		c <- accepted{hello, err}
		if err != nil {
			conn.Close()
		}
	}()
	return c
}

func TestBothProveAndTheHelloArrives(t *testing.T) {
	for _, hello := range [][]byte{nil, []byte("rank 3"), bytes.Repeat([]byte{7}, MaxHello)} {
		a, b := pipe(t)
		done := accept(b, key)
		if err := Initiate(a, key, hello); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if got.err != nil || !bytes.Equal(got.hello, hello) {
			t.Fatalf("hello of %d bytes: got %d bytes, %v", len(hello), len(got.hello), got.err)
		}
		// The next byte belongs to the caller's protocol, in both directions.
		go a.Write([]byte{1})
		var one [1]byte
		if _, err := io.ReadFull(b, one[:]); err != nil || one[0] != 1 {
			t.Fatalf("after the handshake: %v %v", one, err)
		}
		go b.Write([]byte{2})
		if _, err := io.ReadFull(a, one[:]); err != nil || one[0] != 2 {
			t.Fatalf("after the handshake: %v %v", one, err)
		}
	}
}

func TestWrongKeyIsSeenByBothAndNotTold(t *testing.T) {
	a, b := pipe(t)
	done := accept(b, key)
	other := []byte("another-key-another-key-another!")
	err := Initiate(a, other, []byte("hi"))
	got := <-done
	for _, e := range []error{err, got.err} {
		if !errors.Is(e, ErrProof) {
			t.Errorf("want ErrProof, got %v", e)
		} else if strings.Contains(e.Error(), string(key)) || strings.Contains(e.Error(), string(other)) {
			t.Errorf("the key is in the error: %v", e)
		}
	}
	if got.hello != nil {
		t.Error("an unproved hello was returned")
	}
}

func TestBadArguments(t *testing.T) {
	if err := Initiate(nil, nil, nil); err == nil {
		t.Error("empty key accepted by Initiate")
	}
	if _, err := Accept(nil, nil); err == nil {
		t.Error("empty key accepted by Accept")
	}
	if err := Initiate(nil, key, make([]byte, MaxHello+1)); err == nil {
		t.Error("over-long hello accepted")
	}
}

// If a man in the middle changes any single bit, at least the side that received it notices.
func TestEveryBitIsBound(t *testing.T) {
	hello := []byte("generation 4")
	// A receives the opening and the last proof.
	for i := 0; i < openingSize+len(hello)+32; i++ {
		var tr tamper
		a, b := pipe(t)
		tr.Conn, tr.at = b, i
		if i == openingSize-1 {
			b.SetDeadline(time.Now().Add(50 * time.Millisecond)) // A waits for a longer hello
		}
		done := accept(&tr, key)
		go func() {
			Initiate(a, key, hello)
			a.Close()
		}()
		if got := <-done; got.err == nil {
			t.Fatalf("byte %d changed, and accepted", i)
		}
	}
	for i := 0; i < answerSize; i++ {
		var tr tamper
		a, b := pipe(t)
		tr.Conn, tr.at = a, i
		accept(b, key)
		if err := Initiate(&tr, key, hello); err == nil {
			t.Fatalf("byte %d of the answer changed, and accepted", i)
		}
	}
}

// tamper flips one bit of byte number at, counting the bytes that are read.
type tamper struct {
	net.Conn
	at, pos int
}

func (c *tamper) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.at >= c.pos && c.at < c.pos+n {
		p[c.at-c.pos] ^= 0x10
	}
	c.pos += n
	return n, err
}

func TestReplayIsRefused(t *testing.T) {
	a, b := pipe(t)
	rec := &recorder{Conn: a}
	done := accept(b, key)
	if err := Initiate(rec, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-done

	// The recorded initiator with a fresh acceptor.
	c, d := pipe(t)
	done = accept(d, key)
	go io.Copy(io.Discard, c)
	c.Write(rec.sent.Bytes())
	if got := <-done; !errors.Is(got.err, ErrProof) {
		t.Errorf("replayed initiator: %v %q", got.err, got.hello)
	}

	// The recorded acceptor with a fresh initiator.
	e, f := pipe(t)
	go io.Copy(io.Discard, f)
	go f.Write(rec.received.Bytes())
	if err := Initiate(e, key, []byte("x")); !errors.Is(err, ErrProof) {
		t.Errorf("replayed acceptor: %v", err)
	}
}

type recorder struct {
	net.Conn
	sent, received bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { r.sent.Write(p); return r.Conn.Write(p) }
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.received.Write(p[:n])
	return n, err
}

// An attacker without the key sends everything back: to the initiator, its own opening in the form of an answer; to an
// acceptor, its own proof.
func TestReflectionIsRefused(t *testing.T) {
	a, b := pipe(t)
	go func() {
		var opening [openingSize]byte
		io.ReadFull(b, opening[:])
		answer := make([]byte, answerSize)
		copy(answer, opening[:len(magic)+nonceSize])
		b.Write(answer)
		io.Copy(io.Discard, b)
	}()
	if err := Initiate(a, key, nil); !errors.Is(err, ErrProof) {
		t.Errorf("reflected opening: %v", err)
	}

	c, d := pipe(t)
	done := accept(d, key)
	c.Write(append([]byte(magic), make([]byte, nonceSize+2)...))
	var answer [answerSize]byte
	io.ReadFull(c, answer[:])
	c.Write(answer[len(magic)+nonceSize:])
	if got := <-done; !errors.Is(got.err, ErrProof) {
		t.Errorf("reflected proof: %v", got.err)
	}
}

// An end that gets its own nonce back refuses, even with the right key: the other end is an echo.
func TestEqualNoncesAreRefused(t *testing.T) {
	a, b := pipe(t)
	go func() {
		var opening [openingSize]byte
		io.ReadFull(b, opening[:])
		nonce := opening[len(magic):][:nonceSize]
		b.Write(append(opening[:len(magic)+nonceSize:len(magic)+nonceSize],
			proof(key, roleAcceptor, nonce, nonce, nil)...))
		io.Copy(io.Discard, b)
	}()
	if err := Initiate(a, key, nil); !errors.Is(err, ErrProof) {
		t.Errorf("equal nonces: %v", err)
	}
}

func TestGarbageAndTruncation(t *testing.T) {
	opening := append([]byte(magic), make([]byte, nonceSize+2)...)
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"http", []byte("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"), ErrForeign},
		{"other version", append([]byte("gorovod\x02"), make([]byte, nonceSize+2)...), ErrForeign},
		{"half an opening", opening[:20], io.ErrUnexpectedEOF},
		{"no proof", opening, io.EOF},
		{"endless hello", append(opening[:openingSize-2:openingSize-2], 0xff, 0xff), ErrForeign},
	} {
		hello, err := Accept(stream{bytes.NewReader(c.in)}, key)
		if !errors.Is(err, c.want) || hello != nil {
			t.Errorf("%s: got %q, %v, want %v", c.name, hello, err, c.want)
		}
	}
}

// stream feeds a fixed input and swallows output.
type stream struct{ io.Reader }

func (stream) Write(p []byte) (int, error) { return len(p), nil }

func FuzzAccept(f *testing.F) {
	f.Add(append([]byte(magic), make([]byte, nonceSize+2+32)...))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if hello, err := Accept(stream{bytes.NewReader(in)}, key); err == nil {
			t.Fatalf("accepted without knowing the key: %q", hello)
		}
	})
}

func FuzzInitiate(f *testing.F) {
	f.Add(append([]byte(magic), make([]byte, nonceSize+32)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		if err := Initiate(stream{bytes.NewReader(in)}, key, []byte("hi")); err == nil {
			t.Fatal("believed a peer that cannot know the key")
		}
	})
}
