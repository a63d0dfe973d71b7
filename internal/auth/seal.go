package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"syscall"
	"time"
)

// Sealed is a proved connection under TLS 1.3: a third party can neither read it nor change it unnoticed. The end of
// the connection proves nothing: a protocol that must know that everything has arrived needs a mark of its own.
type Sealed struct {
	*tls.Conn
	raw net.Conn
}

var errSeal = errors.New("the other end of TLS is not the one that has proved itself: somebody sits between")

// Seal begins TLS on a connection on which both ends have just proved themselves. initiator: this is the dialling end.
// Each process makes its own certificate, which proves nothing. Instead each end proves itself a second time, over the
// session's exporter, which would differ if there were a man in the middle. Seal blocks as conn does. After an error,
// close conn.
func Seal(conn net.Conn, key []byte, initiator bool) (*Sealed, error) {
	var session *tls.Conn
	if initiator {
		session = tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // see above
	} else {
		cert, err := certificate()
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		session = tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
			SessionTicketsDisabled: true})
	}
	if err := session.Handshake(); err != nil {
		return nil, fmt.Errorf("begin TLS: %w", err)
	}
	state := session.ConnectionState()
	exporter, err := state.ExportKeyingMaterial("EXPORTER-gorovod-proof", nil, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("begin TLS: %w", err)
	}
	mine, theirs := sealProof(key, roleAcceptor, exporter), sealProof(key, roleInitiator, exporter)
	if initiator {
		mine, theirs = theirs, mine
		if _, err := session.Write(mine); err != nil {
			return nil, fmt.Errorf("prove the session: %w", err)
		}
	}
	var tag [sha256.Size]byte
	if _, err := io.ReadFull(session, tag[:]); err != nil {
		return nil, fmt.Errorf("prove the session: %w", err)
	}
	if !hmac.Equal(tag[:], theirs) {
		return nil, fmt.Errorf("auth: %w: %w", errSeal, ErrProof)
	}
	if !initiator {
		if _, err := session.Write(mine); err != nil {
			return nil, fmt.Errorf("prove the session: %w", err)
		}
	}
	return &Sealed{session, conn}, nil
}

func sealProof(key []byte, role byte, exporter []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(magic + "seal"))
	m.Write([]byte{role})
	m.Write(exporter)
	return m.Sum(nil)
}

// CloseWrite tells the other end that this end sends nothing more.
func (s *Sealed) CloseWrite() error {
	err := s.Conn.CloseWrite()
	if raw, ok := s.raw.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, raw.CloseWrite())
	}
	return err
}

// Close ends the connection at once. It does not wait to tell the other end.
func (s *Sealed) Close() error { return s.raw.Close() }

// NetConn returns the connection below TLS.
func (s *Sealed) NetConn() net.Conn { return s.raw }

// SyscallConn returns the raw connection below TLS.
func (s *Sealed) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := s.raw.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// certificate makes a self-signed certificate for this process.
var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})
