package auth_test

import (
	"bytes"
	"crypto/elliptic"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/auth/certtest"
)

var secret = []byte("a secret of enough bytes for any test")

// seal seals a connection. a dials with these certificates, b accepts with those.
func seal(t *testing.T, a, b auth.Certificates) (errA, errB error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var both sync.WaitGroup
	end := func(conn net.Conn, err error, c auth.Certificates, initiator bool) error {
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		s, err := c.Seal(conn, secret, initiator)
		if err != nil {
			return err
		}
		if _, err := s.Write([]byte("x")); err != nil {
			return err
		}
		_, err = io.ReadFull(s, make([]byte, 1))
		return err
	}
	both.Go(func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		errA = end(conn, err, a, true)
	})
	both.Go(func() {
		conn, err := l.Accept()
		errB = end(conn, err, b, false)
	})
	both.Wait()
	return errA, errB
}

// TestCertificates seals connections between processes with all kinds of certificates. If one refuses the other, both
// say so, whichever has dialled.
func TestCertificates(t *testing.T) {
	later, ca, other := time.Now().Add(time.Hour), certtest.NewCA(t), certtest.NewCA(t)
	good, second := ca.Issue(t.TempDir(), later), ca.Issue(t.TempDir(), later)
	below := ca.Below().Below().Issue(t.TempDir(), later)
	strange, old := other.Issue(t.TempDir(), later), ca.Issue(t.TempDir(), time.Now().Add(-time.Minute))
	own := auth.Certificates{}
	for name, c := range map[string]struct {
		one, two         auth.Certificates
		saysOne, saysTwo string
	}{
		"both of one CA": {good, second, "", ""},
		"a CA below":     {good, below, "", ""},
		"both without":   {own, own, "", ""},
		"of another CA": {good, strange, good.CA + " does not vouch for what the other end presents",
			strange.CA + " does not"},
		"over": {good, old, "expired", "does not accept GOROVOD_TLS_CERT=" + old.Cert},
		"one without": {good, own, good.CA + " does not vouch for",
			"set GOROVOD_TLS_CERT, GOROVOD_TLS_KEY and GOROVOD_TLS_CA here, too"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dials := range []string{"one", "two"} {
				var errOne, errTwo error
				if dials == "one" {
					errOne, errTwo = seal(t, c.one, c.two)
				} else {
					errTwo, errOne = seal(t, c.two, c.one)
				}
				for _, e := range []struct {
					err  error
					says string
				}{{errOne, c.saysOne}, {errTwo, c.saysTwo}} {
					switch {
					case e.says == "" && e.err != nil:
						t.Errorf("%s dials: %v", dials, e.err)
					case e.says != "" && (!errors.Is(e.err, auth.ErrCertificate) ||
						!strings.Contains(e.err.Error(), e.says)):
						t.Errorf("%s dials: %v, should say %q", dials, e.err, e.says)
					}
				}
			}
		})
	}
}

// While the files are renewed one after the other, the last certificate counts.
func TestHalfRenewedCertificate(t *testing.T) {
	ca := certtest.NewCA(t)
	there, here := ca.Issue(t.TempDir(), time.Now().Add(time.Hour)), ca.Issue(t.TempDir(), time.Now().Add(time.Hour))
	for _, damage := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(here.Key) },
		func() error { return os.WriteFile(here.Cert, []byte("not yet"), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if errA, errB := seal(t, there, here); errA != nil || errB != nil {
			t.Error(errA, errB)
		}
	}
}

// A renewed certificate counts from the next connection on.
func TestRenewedCertificate(t *testing.T) {
	ca, dir := certtest.NewCA(t), t.TempDir()
	there, here := ca.Issue(t.TempDir(), time.Now().Add(time.Hour)), ca.Issue(dir, time.Now().Add(-time.Minute))
	if errA, _ := seal(t, there, here); errA == nil {
		t.Fatal("an old certificate is accepted")
	}
	ca.Issue(dir, time.Now().Add(time.Hour))
	if errA, errB := seal(t, there, here); errA != nil || errB != nil {
		t.Error(errA, errB)
	}
}

func TestUnfitCertificates(t *testing.T) {
	ca, later := certtest.NewCA(t), time.Now().Add(time.Hour)
	good, second := ca.Issue(t.TempDir(), later), ca.Issue(t.TempDir(), later)
	old, strange := ca.Issue(t.TempDir(), time.Now().Add(-time.Minute)), certtest.NewCA(t).Issue(t.TempDir(), later)
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	written := func(text ...[]byte) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, bytes.Join(text, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	locked := written([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMA==\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	cut := written(read(good.CA), read(second.CA)[:100])
	small := ca.IssueOn(elliptic.P224(), t.TempDir(), later)
	for _, c := range []struct {
		certs auth.Certificates
		off   bool
		says  string
	}{
		{small, false, "GOROVOD_TLS_CERT=" + small.Cert + ": TLS cannot use this certificate"},
		{auth.Certificates{Cert: good.Cert, Key: locked, CA: good.CA}, false,
			"GOROVOD_TLS_KEY: " + locked + " has a passphrase"},
		{auth.Certificates{Cert: good.Cert, Key: string(read(good.Key)), CA: good.CA}, false,
			"GOROVOD_TLS_KEY has the content of a file"},
		{auth.Certificates{Cert: empty, Key: good.Key, CA: good.CA}, false,
			"GOROVOD_TLS_CERT: " + empty + " has no certificate"},
		{auth.Certificates{Cert: good.Cert, Key: good.Key, CA: cut}, false,
			"has 1 certificates (PEM) that can be read, of 2"},
		{auth.Certificates{}, true, ""},
		{good, false, ""},
		{good, true, "GOROVOD_TLS=0 turns TLS off"},
		{auth.Certificates{Cert: good.Cert, Key: good.Key}, false, "GOROVOD_TLS_CA is not set"},
		{auth.Certificates{CA: good.CA}, false, "GOROVOD_TLS_CERT is not set"},
		{auth.Certificates{Cert: good.Cert, Key: good.Key + "x", CA: good.CA}, false,
			"GOROVOD_TLS_KEY: open " + good.Key + "x"},
		{auth.Certificates{Cert: "/dev/zero", Key: good.Key, CA: good.CA}, false,
			"GOROVOD_TLS_CERT: /dev/zero is not a regular file"},
		{auth.Certificates{Cert: good.Cert, Key: second.Key, CA: good.CA}, false, "does not match"},
		{auth.Certificates{Cert: good.Cert, Key: good.Key, CA: empty}, false,
			"GOROVOD_TLS_CA: " + empty + " has 0 certificates"},
		{old, false, "GOROVOD_TLS_CERT=" + old.Cert + " would be refused"},
		{auth.Certificates{Cert: good.Cert, Key: good.Key, CA: strange.CA}, false, "unknown authority"},
	} {
		err := c.certs.Check(c.off)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, should say %q", c.certs, err, c.says)
		}
	}
}
