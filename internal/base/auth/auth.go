// Package auth proves to both ends of a fresh connection that the other end knows the job's secret, before either reads
// anything else. The dialler calls Initiate, and the acceptor calls Accept. Afterwards the connection is like a new
// one, and belongs to the caller's protocol.
//
// The exchange, with T(role) = HMAC-SHA256(key, role ‖ nonceI ‖ nonceA ‖ hello):
//
//	I → A   magic, nonceI, length of hello, hello
//	A → I   magic, nonceA, T(acceptor)
//	I → A   T(initiator)
//
// Each side contributes a fresh nonce, so nobody can replay a recorded proof. The role is part of the proof, so nobody
// can send a proof back to its maker. hello (for example a rank and a generation) is part of both proofs, so nobody can
// exchange it for another. The package proves identity only: it neither encrypts nor signs the bytes that follow.
package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxHello is the largest hello in bytes.
const MaxHello = 4 << 10

var (
	// ErrProof: the other end belongs to another job, or to none.
	ErrProof = errors.New("the peer does not know this job's secret")
	// ErrForeign: the other end does not speak this protocol, or speaks another version of it.
	ErrForeign = errors.New("the peer does not speak this version of gorovod's handshake")
)

// errLeft: the other end left after this end's proof.
var errLeft = fmt.Errorf("it has gone elsewhere: %w", io.EOF)

// magic names the protocol and its version.
const magic = "gorovod\x01"

const (
	nonceSize   = 32
	openingSize = len(magic) + nonceSize + 2 // the bytes before hello
	answerSize  = len(magic) + nonceSize + sha256.Size
)

const (
	roleInitiator byte = 'I'
	roleAcceptor  byte = 'A'
)

// Initiate is the dialling side. It sends hello (at most MaxHello bytes), and returns nil once the other end has proved
// that it knows key. The other end can then check this end's proof and hello. Initiate blocks as conn does: set
// deadlines there. It reads nothing beyond the handshake. After an error, close conn.
func Initiate(conn io.ReadWriter, key, hello []byte) error {
	finish, err := Begin(conn, key, hello)
	if err != nil {
		return err
	}
	return finish()
}

// Begin is Initiate up to the other end's proof; finish then sends this end's proof. A caller that dials several
// addresses at once calls Begin on all of them, and finish on one. Both block as Initiate does. Call finish at most
// once.
func Begin(conn io.ReadWriter, key, hello []byte) (finish func() error, err error) {
	if err := check(key, hello); err != nil {
		return nil, err
	}
	opening := make([]byte, openingSize, openingSize+len(hello))
	copy(opening, magic)
	nonce := opening[len(magic):][:nonceSize]
	rand.Read(nonce)
	binary.BigEndian.PutUint16(opening[openingSize-2:], uint16(len(hello)))
	opening = append(opening, hello...)
	if _, err := conn.Write(opening); err != nil {
		return nil, fmt.Errorf("auth: send the opening: %w", err)
	}

	var answer [answerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, fmt.Errorf("auth: read the peer's proof: %w", err)
	}
	if string(answer[:len(magic)]) != magic {
		return nil, fmt.Errorf("auth: %w", ErrForeign)
	}
	theirs := answer[len(magic):][:nonceSize]
	proved := hmac.Equal(answer[len(magic)+nonceSize:], proof(key, roleAcceptor, nonce, theirs, hello))
	if !proved || bytes.Equal(nonce, theirs) {
		// A wrong proof tells the other end at once that the secrets differ, and reveals nothing about this side's
		// secret.
		var refusal [sha256.Size]byte
		conn.Write(refusal[:])
		return nil, fmt.Errorf("auth: %w", ErrProof)
	}
	return func() error {
		if _, err := conn.Write(proof(key, roleInitiator, nonce, theirs, hello)); err != nil {
			return fmt.Errorf("auth: send the proof: %w", err)
		}
		return nil
	}, nil
}

// Accept is the accepting side. It returns the initiator's hello once the initiator has proved that it knows key. It
// blocks as conn does: set deadlines there. It reads nothing beyond the handshake, and at most MaxHello plus a few
// bytes. After an error, close conn.
func Accept(conn io.ReadWriter, key []byte) (hello []byte, err error) {
	if err := check(key, nil); err != nil {
		return nil, err
	}
	var opening [openingSize]byte
	if _, err := io.ReadFull(conn, opening[:]); err != nil {
		return nil, fmt.Errorf("auth: read the opening: %w", err)
	}
	if string(opening[:len(magic)]) != magic {
		return nil, fmt.Errorf("auth: %w", ErrForeign)
	}
	theirs := opening[len(magic):][:nonceSize]
	size := int(binary.BigEndian.Uint16(opening[openingSize-2:]))
	if size > MaxHello {
		return nil, fmt.Errorf("auth: a hello of %d bytes: %w", size, ErrForeign)
	}
	hello = make([]byte, size)
	if _, err := io.ReadFull(conn, hello); err != nil {
		return nil, fmt.Errorf("auth: read the hello: %w", err)
	}

	var answer [answerSize]byte
	copy(answer[:], magic)
	nonce := answer[len(magic):][:nonceSize]
	rand.Read(nonce)
	copy(answer[len(magic)+nonceSize:], proof(key, roleAcceptor, theirs, nonce, hello))
	if _, err := conn.Write(answer[:]); err != nil {
		return nil, fmt.Errorf("auth: send the proof: %w", err)
	}

	var tag [sha256.Size]byte
	if _, err := io.ReadFull(conn, tag[:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = errLeft
		}
		return nil, fmt.Errorf("auth: read the peer's proof: %w", err)
	}
	if !hmac.Equal(tag[:], proof(key, roleInitiator, theirs, nonce, hello)) || bytes.Equal(nonce, theirs) {
		return nil, fmt.Errorf("auth: %w", ErrProof)
	}
	return hello, nil
}

// proof returns T(role). Every part except the last has a fixed size, so different inputs never give the same text.
func proof(key []byte, role byte, nonceI, nonceA, hello []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(magic))
	m.Write([]byte{role})
	m.Write(nonceI)
	m.Write(nonceA)
	m.Write(hello)
	return m.Sum(nil)
}

func check(key, hello []byte) error {
	if len(key) == 0 {
		return errors.New("auth: the job's secret is empty")
	}
	if len(hello) > MaxHello {
		return fmt.Errorf("auth: a hello of %d bytes, at most %d are allowed", len(hello), MaxHello)
	}
	return nil
}
