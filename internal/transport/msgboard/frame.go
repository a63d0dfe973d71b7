package msgboard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorovod/gorovod/internal/transport"
)

// kind is the first byte of a frame.
type kind byte

// The kinds of frames. Numbers are little-endian uint32.
const (
	kindMark    kind = 1 // to 0: slot, gen; of a group, one after the other
	kindRequest kind = 2 // to 0: the encoded Request
	kindClose   kind = 3 // to 0: nothing
	kindBatch   kind = 4 // from 0: records
	kindStale   kind = 5 // from 0: slot, gen of a mark that came too late; of a group, the first
	kindClosed  kind = 6 // from 0, the last but credit: the member that closed the log
	kindCredit  kind = 7 // both ways: bytes of Requests, or of batches, that were taken
)

func (k kind) String() string {
	names := [...]string{kindMark: "mark", kindRequest: "request", kindClose: "close", kindBatch: "batch",
		kindStale: "stale", kindClosed: "closed", kindCredit: "credit"}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("unknown (%d)", byte(k))
}

var errShape = errors.New("the frame has the wrong shape")

// split takes the kind off a frame and checks the length of its body.
func split(frame []byte, slots int) (kind, []byte, error) {
	if len(frame) == 0 {
		return 0, nil, errShape
	}
	k, body := kind(frame[0]), frame[1:]
	ok := false
	switch k {
	case kindMark:
		ok = len(body) > 0 && len(body)%8 == 0 && len(body) <= 8*slots
	case kindStale:
		ok = len(body) == 8
	case kindClosed, kindCredit:
		ok = len(body) == 4
	case kindClose:
		ok = len(body) == 0
	case kindRequest:
		ok = len(body) <= transport.MaxRecord
	case kindBatch:
		ok = len(frame) <= batchLimit(slots)
	}
	if !ok {
		return k, nil, fmt.Errorf("%v frame of %d bytes: %w", k, len(frame), errShape)
	}
	return k, body, nil
}

func appendPair(p []byte, k kind, slot, gen uint32) []byte {
	p = append(p, byte(k))
	p = binary.LittleEndian.AppendUint32(p, slot)
	return binary.LittleEndian.AppendUint32(p, gen)
}

func appendNumber(p []byte, k kind, v uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(p, byte(k)), v)
}

// pair reads a slot and its generation.
func pair(body []byte) (slot, gen uint32) {
	return number(body), number(body[4:])
}

func number(body []byte) uint32 { return binary.LittleEndian.Uint32(body) }

// appendRecord encodes one record of a batch: its kind, then the slot, or the
// length of the payload and the payload.
func appendRecord(p []byte, r transport.Record) []byte {
	p = append(p, r.Kind)
	if r.Kind == transport.RecordSlot {
		return binary.LittleEndian.AppendUint32(p, r.Slot)
	}
	p = binary.LittleEndian.AppendUint32(p, uint32(len(r.Payload)))
	return append(p, r.Payload...)
}

// cutRecord decodes the first record of body, which must not be empty. The
// record's payload lies in body.
func cutRecord(body []byte, slots int) (r transport.Record, rest []byte, err error) {
	if len(body) < 5 {
		return r, nil, errShape
	}
	r.Kind = body[0]
	n := number(body[1:])
	rest = body[5:]
	switch r.Kind {
	case transport.RecordSlot:
		if int64(n) >= int64(slots) {
			return r, nil, fmt.Errorf("slot %d of %d", n, slots)
		}
		r.Slot = n
		return r, rest, nil
	case transport.RecordResponse:
		if n > transport.MaxRecord || int(n) > len(rest) {
			return r, nil, errShape
		}
		r.Payload = rest[:n:n]
		return r, rest[n:], nil
	}
	return r, nil, fmt.Errorf("record of unknown kind %d", r.Kind)
}

// checkBatch walks a batch's records, so that they can be cut without a check later.
func checkBatch(body []byte, slots int) error {
	if len(body) == 0 {
		return fmt.Errorf("empty batch: %w", errShape)
	}
	for len(body) > 0 {
		var err error
		if _, body, err = cutRecord(body, slots); err != nil {
			return fmt.Errorf("batch: %w", err)
		}
	}
	return nil
}
