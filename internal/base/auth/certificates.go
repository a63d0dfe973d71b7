package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/regular"
)

// The variables that name the files of Certificates.
const (
	CertVariable = "GOROVOD_TLS_CERT"
	KeyVariable  = "GOROVOD_TLS_KEY"
	CAVariable   = "GOROVOD_TLS_CA"
)

// Certificates are files (PEM): the certificate that this process presents, with the certificates between it and the
// CA; its key; and the CAs, one of which must have signed what the other end presents. They come in addition to the
// job's secret: names in certificates do not count, because the secret says whose process it is. The files are read for
// each connection, so a renewed certificate needs no restart; while they cannot be used, what was read last counts.
// With the zero value the process makes a certificate of its own, which proves nothing, and accepts all.
type Certificates struct {
	Cert, Key, CA string
}

// CertificatesFrom returns what the variables name; the zero value if none is set.
func CertificatesFrom(getenv func(string) string) Certificates {
	return Certificates{Cert: getenv(CertVariable), Key: getenv(KeyVariable), CA: getenv(CAVariable)}
}

// IsSet reports whether any file is named.
func (c Certificates) IsSet() bool { return c != Certificates{} }

// Check reads the files, and says why they cannot be used. off: GOROVOD_TLS=0 turns TLS off.
func (c Certificates) Check(off bool) error {
	if !c.IsSet() {
		return nil
	}
	for _, f := range []struct{ name, path string }{{CertVariable, c.Cert}, {KeyVariable, c.Key}, {CAVariable, c.CA}} {
		switch {
		case f.path == "":
			return fmt.Errorf("%s is not set: a certificate for TLS needs %s, %s and %s", f.name, CertVariable,
				KeyVariable, CAVariable)
		case strings.Contains(f.path, "-----BEGIN"):
			return fmt.Errorf("%s has the content of a file: the file's name is needed", f.name)
		}
	}
	if off {
		return fmt.Errorf("GOROVOD_TLS=0 turns TLS off, and %s, %s and %s ask for it: unset it, or them", CertVariable,
			KeyVariable, CAVariable)
	}
	own, err := c.read()
	if err != nil {
		return err
	}
	if err := own.judge(own.pair.Certificate); err != nil {
		return fmt.Errorf("%s=%s would be refused by processes with the same %s=%s: %w", CertVariable, c.Cert,
			CAVariable, c.CA, err)
	}
	if err := Usable(own.pair, tls.VersionTLS13); err != nil {
		return fmt.Errorf("%s=%s: %w", CertVariable, c.Cert, err)
	}
	return nil
}

// usableTime is how long a handshake with oneself may take.
const usableTime = 2 * time.Second

// Usable says why TLS, of this version or later, cannot use a certificate: it tries it.
func Usable(pair tls.Certificate, version uint16) error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	a.SetDeadline(time.Now().Add(usableTime))
	b.SetDeadline(time.Now().Add(usableTime))
	settings := &tls.Config{MinVersion: version, Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
		SessionTicketsDisabled: true}
	server := make(chan error, 1)
	guard.Go("the trial of a certificate", func(err error) { server <- err }, func() {
		server <- tls.Server(b, settings).Handshake()
	})
	err := tls.Client(a, settings).Handshake()
	if err == nil {
		return nil
	}
	if own := <-server; own != nil && !errors.Is(own, os.ErrDeadlineExceeded) {
		err = own // what this end only hears as an alert
	}
	return fmt.Errorf("TLS cannot use this certificate: %w", err)
}

// Plain says why a process that knows the secret, and does not use TLS, cannot take part; nil if it can. The process's
// user reads it.
func (c Certificates) Plain() error {
	if !c.IsSet() {
		return nil
	}
	return fmt.Errorf("%w: there is none without TLS, and the job wants one that its CA has signed: set %s, %s and %s "+
		"here, too", ErrCertificate, CertVariable, KeyVariable, CAVariable)
}

// credentials are the content of Certificates.
type credentials struct {
	pair tls.Certificate
	cas  *x509.CertPool // nil: accept all
}

// mostPEM is the most bytes of a file.
const mostPEM = 1 << 20

// lastRead has the last credentials that could be used, by Certificates.
var lastRead sync.Map

// load returns the content of the files, or what it was when they could be used: they may be renewed just now, one
// after the other.
func (c Certificates) load() (own credentials, err error) {
	if !c.IsSet() {
		own.pair, err = selfMade()
		return own, err
	}
	if own, err = c.read(); err == nil {
		lastRead.Store(c, own)
	} else if last, ok := lastRead.Load(c); ok {
		return last.(credentials), nil
	}
	return own, err
}

// read reads the files.
func (c Certificates) read() (own credentials, err error) {
	if own.pair, err = ReadPair(CertVariable, c.Cert, KeyVariable, c.Key); err != nil {
		return own, err
	}
	text, err := regular.Read(c.CA, mostPEM)
	if err != nil {
		return own, fmt.Errorf("%s: %w", CAVariable, err)
	}
	own.cas = x509.NewCertPool()
	found := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return own, fmt.Errorf("%s: certificate %d of %s: %w", CAVariable, found+1, c.CA, err)
		}
		own.cas.AddCert(ca)
		found++
	}
	if begun := bytes.Count(text, []byte("-----BEGIN ")); found == 0 || found < begun {
		return own, fmt.Errorf("%s: %s has %d certificates (PEM) that can be read, of %d: %s", CAVariable, c.CA, found,
			begun, derHint)
	}
	return own, nil
}

// derHint is for files in another form.
const derHint = "openssl x509 -inform DER -in FILE turns other forms into PEM"

// ReadPair reads a certificate and its key. certName and keyName are the variables that name the files, for errors,
// which contain nothing of the key.
func ReadPair(certName, certFile, keyName, keyFile string) (pair tls.Certificate, err error) {
	cert, err := regular.Read(certFile, mostPEM)
	if err != nil {
		return pair, fmt.Errorf("%s: %w", certName, err)
	}
	key, err := regular.Read(keyFile, mostPEM)
	if err != nil {
		return pair, fmt.Errorf("%s: %w", keyName, err)
	}
	if block, _ := pem.Decode(cert); block == nil {
		return pair, fmt.Errorf("%s: %s has no certificate (PEM): %s", certName, certFile, derHint)
	}
	if bytes.Contains(key, []byte("ENCRYPTED")) {
		return pair, fmt.Errorf("%s: %s has a passphrase, which nobody could type: openssl pkey -in FILE writes the "+
			"key without one", keyName, keyFile)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, fmt.Errorf("%s=%s with %s=%s: %w (the process's own certificate must come first in the file, and "+
			"the key must be its)", certName, certFile, keyName, keyFile, err)
	}
	return pair, nil
}

// judge says why a chain of certificates (DER, the process's own first) is not accepted.
func (own *credentials) judge(chain [][]byte) error {
	if own.cas == nil {
		return nil
	}
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	between := x509.NewCertPool()
	for _, der := range chain[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return err
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: own.cas, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}) // both ends dial: there are no clients and servers
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Cert != nil {
		return fmt.Errorf("%q: %w", invalid.Cert.Subject.String(), err)
	}
	return err
}

// selfMade makes a self-signed certificate for this process.
var selfMade = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
})
