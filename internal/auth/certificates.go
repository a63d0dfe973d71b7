package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/regular"
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
// each connection, so a renewed certificate needs no restart. With the zero value the process makes a certificate of
// its own, which proves nothing, and accepts all.
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
		if f.path == "" {
			return fmt.Errorf("%s is not set: a certificate for TLS needs %s, %s and %s", f.name, CertVariable,
				KeyVariable, CAVariable)
		}
	}
	if off {
		return fmt.Errorf("GOROVOD_TLS=0 turns TLS off, and %s, %s and %s ask for it: unset it, or them", CertVariable,
			KeyVariable, CAVariable)
	}
	own, err := c.load()
	if err != nil {
		return err
	}
	if err := own.judge(own.pair.Certificate); err != nil {
		return fmt.Errorf("%s=%s would be refused by processes with the same %s=%s: %w", CertVariable, c.Cert,
			CAVariable, c.CA, err)
	}
	return nil
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

// load reads the files.
func (c Certificates) load() (own credentials, err error) {
	if !c.IsSet() {
		own.pair, err = selfMade()
		return own, err
	}
	if own.pair, err = c.pair(); err != nil {
		own.pair, err = c.pair() // the files may just have been renewed, one after the other
	}
	if err != nil {
		return own, err
	}
	text, err := regular.Read(c.CA, mostPEM)
	if err != nil {
		return own, fmt.Errorf("%s: %w", CAVariable, err)
	}
	own.cas = x509.NewCertPool()
	if !own.cas.AppendCertsFromPEM(text) {
		return own, fmt.Errorf("%s: %s has no certificate (PEM)", CAVariable, c.CA)
	}
	return own, nil
}

func (c Certificates) pair() (tls.Certificate, error) {
	cert, err := regular.Read(c.Cert, mostPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", CertVariable, err)
	}
	key, err := regular.Read(c.Key, mostPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", KeyVariable, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s=%s with %s=%s: %w", CertVariable, c.Cert, KeyVariable, c.Key, err)
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
