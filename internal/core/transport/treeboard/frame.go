package treeboard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// kind is the first byte of a frame.
type kind byte

// The kinds of frames. Numbers are little-endian uint32.
const (
	// Up: cards that all below have marked. Each is the card, its generation, and in two bytes the member that marked
	// it last. The top bit of the card says that the same step completed the next card, too.
	kindMark kind = 1
	// Up: Requests. Each is the number of members that have posted it (0: all below the sender), these members, its
	// length, and the encoded Request.
	kindRequest kind = 2
	kindClose   kind = 3 // up: the member that closes the log
	kindBatch   kind = 4 // down: records
	kindClosed  kind = 5 // down: the member that closed the log. Only credit may follow
	kindCredit  kind = 6 // both ways: bytes of Requests or batches that the receiver has passed on
	kindCall    kind = 7 // to the leader of the sender's own host: look at the board that they share
	// Up: cards that all below have marked, with operands, see early.go. Each is a mark as in kindMark, not chained;
	// the operands' type and how they are combined, in a byte each; their length; and an operand for each host below
	// the receiver on this link, in the order of child.hosts.
	kindOperands kind = 8
)

// together is the bit of a mark's card that chains it to the next.
const together = 1 << 31

// markBytes is the size of one mark.
const markBytes = 10

func (k kind) String() string {
	names := [...]string{kindMark: "mark", kindRequest: "request", kindClose: "close", kindBatch: "batch",
		kindClosed: "closed", kindCredit: "credit", kindCall: "call", kindOperands: "operands"}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("unknown (%d)", byte(k))
}

var errShape = errors.New("the frame has the wrong shape")

// split takes the kind off a frame and checks the length of its body.
func (c *Config) split(frame []byte) (kind, []byte, error) {
	if len(frame) == 0 {
		return 0, nil, errShape
	}
	k, body := kind(frame[0]), frame[1:]
	ok := false
	switch k {
	case kindMark:
		ok = len(body) > 0 && len(body)%markBytes == 0 && len(body) <= markBytes*c.Cards
	case kindOperands:
		ok = len(body) > 0 && len(frame) <= operandsLimit(c.Early)
	case kindClose, kindClosed, kindCredit:
		ok = len(body) == 4
	case kindCall:
		ok = len(body) == 0
	case kindRequest:
		ok = len(body) > 0 && len(frame) <= requestWindow
	case kindBatch:
		ok = len(body) > 0 && len(frame) <= batchLimit(c.Cards, c.Early)
	}
	if !ok {
		return k, nil, fmt.Errorf("%v frame of %d bytes: %w", k, len(frame), errShape)
	}
	return k, body, nil
}

func appendNumber(p []byte, k kind, v uint32) []byte {
	return put(append(p, byte(k)), v)
}

func put(p []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(p, v) }
func number(p []byte) uint32        { return binary.LittleEndian.Uint32(p) }

// appendMark encodes one completed card.
func appendMark(p []byte, r transport.Record) []byte {
	card := r.Card
	if r.Chained {
		card |= together
	}
	return binary.LittleEndian.AppendUint16(put(put(p, card), r.Gen), r.Last)
}

// cutChain decodes the first mark of body, which must not be empty, and the marks that were completed with it, into
// marks. last is the member that marked them last.
func cutChain(marks []transport.Mark, body []byte, cards int) (_ []transport.Mark, last uint16, rest []byte,
	err error) {
	marks = marks[:0]
	for more := true; more; body = body[markBytes:] {
		if len(body) == 0 {
			return nil, 0, nil, fmt.Errorf("the last mark is chained: %w", errShape)
		}
		card := number(body)
		more = card&together != 0
		card &^= together
		if int64(card) >= int64(cards) {
			return nil, 0, nil, fmt.Errorf("mark of card %d of %d", card, cards)
		}
		marks = append(marks, transport.Mark{Card: card, Gen: number(body[4:])})
		last = binary.LittleEndian.Uint16(body[8:])
	}
	return marks, last, body, nil
}

// appendRequest encodes one Request; nil members stand for all below the sender.
func appendRequest(p []byte, members []int, request []byte) []byte {
	p = put(p, uint32(len(members)))
	for _, m := range members {
		p = put(p, uint32(m))
	}
	return append(put(p, uint32(len(request))), request...)
}

// cutRequest decodes the first Request of body, which must not be empty. It appends the Request's members to set: none
// for all below the sender.
func cutRequest(body []byte, set []int) (members []int, request, rest []byte, err error) {
	if len(body) < 4 {
		return nil, nil, nil, errShape
	}
	n := int64(number(body))
	body = body[4:]
	if n > int64(len(body)/4) {
		return nil, nil, nil, errShape
	}
	for range n {
		set = append(set, int(number(body)))
		body = body[4:]
	}
	if len(body) < 4 {
		return nil, nil, nil, errShape
	}
	length := number(body)
	body = body[4:]
	if length > transport.MaxRecord || int(length) > len(body) {
		return nil, nil, nil, errShape
	}
	return set, body[:length:length], body[length:], nil
}

// appendRecord encodes one record of a batch. It begins with its kind. A card record goes on with the card and the
// member that marked it last, a result with the same and then like a Response, a retired one with the card and the
// generation that has ended, a Response with the length of its payload and the payload.
func appendRecord(p []byte, r transport.Record) []byte {
	p = append(p, r.Kind)
	switch r.Kind {
	case transport.RecordCard:
		return binary.LittleEndian.AppendUint16(put(p, r.Card), r.Last)
	case transport.RecordRetired:
		return put(put(p, r.Card), r.Gen)
	case transport.RecordResult:
		p = binary.LittleEndian.AppendUint16(put(p, r.Card), r.Last)
	}
	return append(put(p, uint32(len(r.Payload))), r.Payload...)
}

// cutRecord decodes the first record of body, which must not be empty. The
// record's payload lies in body.
func cutRecord(body []byte, cards int) (r transport.Record, rest []byte, err error) {
	if len(body) < 5 {
		return r, nil, errShape
	}
	r.Kind = body[0]
	n := number(body[1:])
	rest = body[5:]
	switch r.Kind {
	case transport.RecordCard, transport.RecordRetired, transport.RecordResult:
		if int64(n) >= int64(cards) {
			return r, nil, fmt.Errorf("card %d of %d", n, cards)
		}
		r.Card = n
		tail := 2
		if r.Kind == transport.RecordRetired {
			tail = 4
		}
		if len(rest) < tail {
			return r, nil, errShape
		}
		switch r.Kind {
		case transport.RecordRetired:
			r.Gen = number(rest)
			return r, rest[tail:], nil
		case transport.RecordCard:
			r.Last = binary.LittleEndian.Uint16(rest)
			return r, rest[tail:], nil
		}
		r.Last = binary.LittleEndian.Uint16(rest)
		if rest = rest[tail:]; len(rest) < 4 {
			return r, nil, errShape
		}
		return cutPayload(r, number(rest), rest[4:])
	case transport.RecordResponse:
		return cutPayload(r, n, rest)
	}
	return r, nil, fmt.Errorf("record of unknown kind %d", r.Kind)
}

// cutPayload decodes the payload of n bytes at the end of a record.
func cutPayload(r transport.Record, n uint32, rest []byte) (transport.Record, []byte, error) {
	if n > transport.MaxRecord || int(n) > len(rest) {
		return r, nil, errShape
	}
	r.Payload = rest[:n:n]
	return r, rest[n:], nil
}

// cutBatch decodes all records of a batch frame's body.
func cutBatch(records []transport.Record, body []byte, cards int) ([]transport.Record, error) {
	records = records[:0]
	for len(body) > 0 {
		r, rest, err := cutRecord(body, cards)
		if err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
		records = append(records, r)
		body = rest
	}
	return records, nil
}
