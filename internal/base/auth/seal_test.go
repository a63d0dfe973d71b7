package auth

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// sealBoth seals both ends of two connections. a and b may belong to different connections.
func sealBoth(a, b net.Conn, keyA, keyB []byte) (sa, sb *Sealed, errA, errB error) {
	var both sync.WaitGroup
	both.Go(func() {
		if sa, errA = (Certificates{}).Seal(a, keyA, true); errA != nil {
			a.Close()
		}
	})
	both.Go(func() {
		if sb, errB = (Certificates{}).Seal(b, keyB, false); errB != nil {
			b.Close()
		}
	})
	both.Wait()
	return
}

func TestSeal(t *testing.T) {
	a, b := pipe(t)
	tap := &recorder{Conn: a}
	sa, sb, errA, errB := sealBoth(tap, b, key, key)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("what nobody else may read "), 1000)
	go func() {
		sa.Write(text)
		sa.CloseWrite()
	}()
	got, err := io.ReadAll(sb)
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(text), err)
	}
	if bytes.Contains(tap.sent.Bytes(), text[:26]) {
		t.Error("it can be read on the way")
	}
	if sb.ConnectionState().Version != 0x0304 {
		t.Errorf("TLS %#x", sb.ConnectionState().Version)
	}
}

// A man in the middle who does not know the secret fails: each end has a session with him, so the two proofs are over
// different exporters.
func TestManInTheMiddle(t *testing.T) {
	a, m1 := pipe(t)
	m2, b := pipe(t)
	go func() {
		// The man accepts one connection, dials the other, and passes everything on.
		cert, _ := selfMade()
		left := tls.Server(m1, &tls.Config{Certificates: []tls.Certificate{cert},
			ClientAuth: tls.RequireAnyClientCert})
		right := tls.Client(m2, &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true})
		go io.Copy(right, left)
		io.Copy(left, right)
		m1.Close()
		m2.Close()
	}()
	_, _, errA, errB := sealBoth(a, b, key, key)
	if !errors.Is(errB, ErrProof) || errA == nil {
		t.Errorf("initiator: %v; acceptor: %v", errA, errB)
	}
}

func TestSealNeedsTheSecret(t *testing.T) {
	a, b := pipe(t)
	_, _, errA, errB := sealBoth(a, b, []byte("another"), key)
	if errA == nil || !errors.Is(errB, ErrProof) {
		t.Errorf("initiator: %v; acceptor: %v", errA, errB)
	}
}
