package rendezvous

import (
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/gorovod/gorovod/internal/base/jsonframe"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/base/shape"
)

// Limits on the messages that each side accepts from the other.
const (
	// MaxValue is the largest value of an Exchange, and the largest answer, in bytes.
	MaxValue = 64 << 10
	// maxName is the longest name of an Exchange.
	maxName = 256
	// maxHost is the longest host name that messages show.
	maxHost = 256
	// maxText is the longest report or error text that travels.
	maxText = 4 << 10
	// maxFrame bounds every frame, in bytes. The largest frames are an answer, in base64, and a frame of values, of
	// which there are at most batchBytes.
	maxFrame   = 192 << 10
	batchBytes = 96 << 10
	// maxPending is the most Exchanges that one rank may have open at a time, and the most Asks.
	maxPending = 64
	// maxQueue bounds the bytes that wait to be sent to one rank.
	maxQueue = 64 << 20
)

// hello is what a rank says about itself inside the proof. Its fields keep their meaning in all versions, so that
// different versions can recognise each other.
type hello struct {
	Protocol   int
	Arch       string
	Rank, Size int
	Host       string
	PID        int
	Generation uint64
	TLS        bool   `json:",omitempty"` // the rank begins TLS now
	Shape      string `json:",omitempty"` // Shape(); empty from versions that knew of none
	Now        int64  `json:",omitempty"` // the clock of the rank's host, as Unix time in ns
}

// message is one frame: a type and the fields that belong to it.
type message struct {
	Type string

	// The k-th use of a name on one rank belongs to the k-th use on the others.
	Name string `json:",omitempty"`
	Use  uint64 `json:",omitempty"` // ask, asking, answered: the number of the asker's Ask

	Value  []byte   `json:",omitempty"` // exchange, answer
	First  int      `json:",omitempty"` // values: the rank of Values[0]
	Spans  []int    `json:",omitempty"` // answer from the server: the first and last of ranks that gave it, again and again
	Values [][]byte `json:",omitempty"`
	Alike  bool     `json:",omitempty"` // values: all ranks gave Values[0]

	Text       string    `json:",omitempty"` // refused, failed, missing, give up, report, cause, verdict
	View       string    `json:",omitempty"` // cause, verdict
	Left       bool      `json:",omitempty"` // cause, verdict: nothing failed, but a rank has left
	About      int       `json:",omitempty"` // report: 1 + the rank that failed; 0: the rank that reports
	At         int64     `json:",omitempty"` // report, victim: when it happened, as Unix time in ns of the rank's host
	Death      *Death    `json:",omitempty"` // death, failed
	Silent     []Silence `json:",omitempty"` // beats
	Generation uint64    `json:",omitempty"` // welcome
	Stack      bool      `json:",omitempty"` // tell: with the stack of the program's thread
}

const (
	// From a rank:
	typeExchange = "exchange"
	typeGiveUp   = "give up" // the rank has waited for so long (Text), and asks who is missing
	typeAsk      = "ask"     // to all members, this one included
	typeAnswer   = "answer"  // to a question; from the server, an answer of some ranks, passed on to the asker
	typeReport   = "report"
	typeCause    = "cause"  // why this rank's operations ended
	typeVictim   = "victim" // operations have failed because of the verdict
	typeLeave    = "leave"
	typeBeat     = "beat" // the rank waits, and asks which ranks are silent
	typePong     = "pong"
	typeFigures  = "figures" // the answer to typeTell
	// From the server:
	typeWelcome = "welcome"
	typeRefused = "refused"
	typeValues  = "values"
	typeFailed  = "failed"
	typeMissing = "missing"
	typeDeath   = "death"
	typeVerdict = "verdict" // why the operations of all ranks end
	// The server sends this when another rank asks.
	typeQuestion = "question"
	// typeAsking: the answers that follow are to the Ask with this number. typeAnswered: no more answers to that Ask
	// follow.
	typeAsking   = "asking"
	typeAnswered = "answered"
	// The server sends this when another rank sends a Beat. The rank answers it.
	typePing  = "ping"
	typeBeats = "beats"
	typeTell  = "tell" // the launcher wants this rank's figures
)

// Shape differs between builds whose messages or operations differ, even if nobody has raised Protocol.
var Shape = sync.OnceValue(func() string { return shape.Digest(Protocol, operation.Version(), hello{}, message{}) })

// encode returns the frame: JSON, or the form of encodeValues.
func encode(m message) (frame []byte, err error) {
	if m.Type == typeValues {
		frame, err = jsonframe.AppendBody(nil, encodeValues(m), maxFrame)
	} else {
		frame, err = jsonframe.Append(nil, m, maxFrame)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Type, err)
	}
	return frame, nil
}

func decode(r io.Reader) (m message, err error) {
	body, err := jsonframe.ReadBody(r, maxFrame)
	if err != nil {
		return m, err
	}
	if len(body) > 0 && (body[0] == valuesPrefix || body[0] == deflatedPrefix) {
		return decodeValues(body)
	}
	err = jsonframe.Decode(body, &m)
	return m, err
}

// clip cuts s to at most n bytes, between characters.
func clip(s string, n int) string {
	shown := printable.Text(s[:min(len(s), n)])
	if len(s) <= n && len(shown) <= n {
		return shown
	}
	n = min(n, len(shown))
	for n > 0 && n < len(shown) && !utf8.RuneStart(shown[n]) {
		n--
	}
	return shown[:n] + "…"
}
