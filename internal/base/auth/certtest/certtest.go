// Package certtest makes certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// CA signs certificates.
type CA struct {
	t     testing.TB
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	chain []byte // PEM: the certificates between this CA and the first
	root  []byte // PEM: the first CA
}

// NewCA returns a CA that has signed itself.
func NewCA(t testing.TB) *CA {
	ca := &CA{t: t}
	var der []byte
	ca.cert, ca.key, der = ca.sign(elliptic.P256(), true, time.Now().Add(time.Hour))
	ca.root = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return ca
}

// Below returns a CA that ca has signed.
func (ca *CA) Below() *CA {
	below := &CA{t: ca.t, root: ca.root}
	var der []byte
	below.cert, below.key, der = ca.sign(elliptic.P256(), true, time.Now().Add(time.Hour))
	below.chain = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), ca.chain...)
	return below
}

// sign makes a key on a curve and a certificate. ca signs it, or it signs itself if ca has no certificate yet.
func (ca *CA) sign(curve elliptic.Curve, isCA bool, end time.Time) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: end,
		IsCA: isCA, BasicConstraintsValid: isCA, Subject: pkix.Name{CommonName: serial.String()}}
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key, der
}

// Issue writes a certificate that is valid until end, its key and the first CA into a directory, under the names of a
// mounted Secret of Kubernetes.
func (ca *CA) Issue(dir string, end time.Time) auth.Certificates {
	ca.t.Helper()
	return ca.IssueOn(elliptic.P256(), dir, end)
}

// IssueOn is Issue with a key on another curve.
func (ca *CA) IssueOn(curve elliptic.Curve, dir string, end time.Time) auth.Certificates {
	ca.t.Helper()
	_, key, der := ca.sign(curve, false, end)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	c := auth.Certificates{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		CA: filepath.Join(dir, "ca.crt")}
	for path, text := range map[string][]byte{
		c.Cert: append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), ca.chain...),
		c.Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		c.CA:   ca.root,
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			ca.t.Fatal(err)
		}
	}
	return c
}

// Environment is what names the files of c.
func Environment(c auth.Certificates) []string {
	return []string{auth.CertVariable + "=" + c.Cert, auth.KeyVariable + "=" + c.Key, auth.CAVariable + "=" + c.CA}
}

// Own is TLS with the processes' own certificates, or none.
func Own(on bool) *auth.Certificates {
	if !on {
		return nil
	}
	return &auth.Certificates{}
}
