package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// Sealed is a proved connection under TLS 1.3: a third party can neither read it nor change it unnoticed. The end of
// the connection proves nothing: a protocol that must know that everything has arrived needs a mark of its own.
type Sealed struct {
	*tls.Conn
	raw net.Conn
}

var errSeal = errors.New("the other end of TLS is not the one that has proved itself: somebody sits between")

// ErrCertificate is the error of both ends if one of them does not accept the other's certificate.
var ErrCertificate = errors.New("certificate refused")

// Seal begins TLS on a connection on which both ends have just proved themselves. initiator: this is the dialling end.
// A certificate that a process has made for itself proves nothing. So each end proves itself a second time, over the
// session's exporter, which would differ if there were a man in the middle, and says what it thinks of the other's
// certificate:
//
//	initiator → acceptor   proof, length of the reason (0: accepted), reason
//	acceptor → initiator   the same
//
// Seal blocks as conn does. After an error, close conn.
func (c Certificates) Seal(conn net.Conn, key []byte, initiator bool) (*Sealed, error) {
	own, err := c.load()
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{own.pair}, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true} // judged below, where the other end can be told why
	session := tls.Server(conn, settings)
	mine, theirs := roleAcceptor, roleInitiator
	if initiator {
		session = tls.Client(conn, settings)
		mine, theirs = theirs, mine
	}
	if err := session.Handshake(); err != nil {
		return nil, fmt.Errorf("begin TLS: %w", err)
	}
	state := session.ConnectionState()
	exporter, err := state.ExportKeyingMaterial("EXPORTER-gorovod-proof", nil, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("begin TLS: %w", err)
	}
	var chain [][]byte
	for _, one := range state.PeerCertificates {
		chain = append(chain, one.Raw)
	}
	unfit := own.judge(chain)
	proof := sealProof(key, mine, exporter)
	if initiator {
		if err := sendProof(session, proof, unfit); err != nil {
			return nil, err
		}
	}
	refusal, err := receiveProof(session, sealProof(key, theirs, exporter))
	if err != nil {
		return nil, err
	}
	if !initiator {
		if err := sendProof(session, proof, unfit); err != nil {
			return nil, err
		}
	}
	switch {
	case unfit != nil:
		return nil, fmt.Errorf("auth: %w: %s=%s does not vouch for what the other end presents: %w", ErrCertificate,
			CAVariable, c.CA, unfit)
	case refusal != "" && c.IsSet():
		return nil, fmt.Errorf("auth: %w: the other end does not accept %s=%s: %s", ErrCertificate, CertVariable,
			c.Cert, refusal)
	case refusal != "":
		return nil, fmt.Errorf("auth: %w: the other end wants one that its CA has signed: set %s, %s and %s here, too",
			ErrCertificate, CertVariable, KeyVariable, CAVariable)
	}
	return &Sealed{session, conn}, nil
}

// sendProof sends a proof, and why the other end's certificate is not accepted; nil if it is.
func sendProof(session *tls.Conn, proof []byte, unfit error) error {
	reason := ""
	if unfit != nil {
		reason = unfit.Error()
		reason = reason[:min(len(reason), mostReason)]
	}
	if _, err := session.Write(append(append(proof, byte(len(reason))), reason...)); err != nil {
		return fmt.Errorf("prove the session: %w", err)
	}
	return nil
}

// mostReason is the most bytes of a reason.
const mostReason = 255

// receiveProof reads what sendProof has sent at the other end.
func receiveProof(session *tls.Conn, proof []byte) (refusal string, err error) {
	var tag [sha256.Size]byte
	if _, err := io.ReadFull(session, tag[:]); err != nil {
		return "", fmt.Errorf("prove the session: %w", err)
	}
	if !hmac.Equal(tag[:], proof) {
		return "", fmt.Errorf("auth: %w: %w", errSeal, ErrProof)
	}
	var reason [mostReason]byte
	if _, err := io.ReadFull(session, reason[:1]); err != nil {
		return "", fmt.Errorf("prove the session: %w", err)
	}
	length := reason[0]
	if _, err := io.ReadFull(session, reason[:length]); err != nil {
		return "", fmt.Errorf("prove the session: %w", err)
	}
	return printable.Text(string(reason[:length])), nil
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
