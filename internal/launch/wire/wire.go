// Package wire is what a launcher and its agents on other hosts say to each other.
//
// They speak through an ssh's stdin and stdout, or through a connection. Each end first sends a line with its version.
// Ends of different versions exchange nothing more. Frames follow: four bytes of length (big endian), a byte of kind,
// and the body. A frame is a Note in JSON, a piece of a command's output, or a piece of the job's input.
//
// Output never blocks other frames: each end sends only as many bytes of a stream as the other has granted by credits,
// so the other end has room for them.
//
// This package writes, reads and checks frames. It must not know what the ends do about them.
package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// Protocol changes whenever the frames change.
const Protocol = 5

// The words that begin the ends' first lines.
const (
	AgentGreeting    = "gorovod-agent"
	LauncherGreeting = "gorovod-launcher"
	// NobodyGreeting is the answer of a shell that finds no agent.
	NobodyGreeting = "gorovod-agent is none of:"
)

// The limits, in bytes.
const (
	MaxGreeting = 1 << 10
	MaxNoise    = 64 << 10 // before the agent's greeting, for what a login shell prints
	MaxFrame    = 64 << 20
	// StreamWindow is the most bytes of one stream that are under way.
	StreamWindow = 256 << 10
	// inputPiece is the most bytes of the job's input in a frame; the input may be larger than any frame.
	inputPiece = 1 << 20
	// GrantAt is how many bytes must have been read before one message grants them again.
	GrantAt = StreamWindow / 4
)

// The kinds of frames.
const (
	noteFrame   = 'n' // a note in JSON
	outputFrame = 'o' // uvarint id, stream byte, bytes; without bytes it is the stream's end
	inputFrame  = 'i' // bytes: a piece of the job's Input, before the job's note
)

// Note is every frame but output. Type says which fields have a meaning.
type Note struct {
	Type string

	ID      int            `json:",omitempty"`
	Command *spawn.Command `json:",omitempty"`
	PID     int            `json:",omitempty"`
	Signal  int            `json:",omitempty"`
	Code    int            `json:",omitempty"`
	Text    string         `json:",omitempty"`
	Stream  int            `json:",omitempty"`
	Bytes   int            `json:",omitempty"`
	// At is a Unix time in ns of the agent's host. In an ended note, it is when the command ended; in others, when the
	// agent sent the note.
	At int64     `json:",omitempty"`
	at time.Time // At by this host's clock, in an ended note that was received

	Job   *Assignment `json:",omitempty"`
	Ready *Readiness  `json:",omitempty"`
	Query *Query      `json:",omitempty"`
	Reply []byte      `json:",omitempty"`
}

// The types of notes: first the launcher's, then the agent's.
const (
	JobNote    = "job"    // Job, once, before all others
	StartNote  = "start"  // ID, Command
	SignalNote = "signal" // ID, Signal
	CreditNote = "credit" // ID, Stream, Bytes: how many more bytes may be sent
	PingNote   = "ping"
	QueryNote  = "query" // ID, Query
	// OutcomeNote: Code is the job's exit code. It is the last note.
	OutcomeNote = "outcome"
	// Either end may send a refused note. It ends the conversation.

	ReadyNote   = "ready"   // Ready: the agent has taken the job
	RefusedNote = "refused" // Text: why the agent refuses the job, or gives up
	StartedNote = "started" // ID, PID, At
	EndedNote   = "ended"   // ID, PID, Signal, Code, At; Text if the command could not start
	GoneNote    = "gone"    // ID
	OverNote    = "over"    // ID
	PongNote    = "pong"    // At
	ReplyNote   = "reply"   // ID, Reply; Text if there is no reply
	GoingNote   = "going"   // Text: why the host is to leave the job
)

// Query is a question to an agent: gorovod doctor's, or whether a signal can be forwarded.
type Query struct {
	What      string
	Python    string   `json:",omitempty"` // inspect: the interpreter to ask, looked up as a rank's command is
	Named     bool     `json:",omitempty"` // inspect: whether the user has named it
	Env       []string `json:",omitempty"` // inspect: what a rank there gets of the launcher's environment
	Addresses []string `json:",omitempty"` // probe: where the other host may be
	Signal    int      `json:",omitempty"` // forward: the signal
}

// The questions.
const (
	InspectQuery = "inspect" // the answer is a cluster.Facts
	TimeQuery    = "time"    // the answer is a time.Time
	ListenQuery  = "listen"  // the answer is a port, which waits for one probe
	ProbeQuery   = "probe"   // the answer is a cluster.Path
	ForwardQuery = "forward" // the answer is a spawn.Delivery
)

// Assignment is the job's data for an agent.
type Assignment struct {
	Host   string // as the user names the agent's host
	Dir    string // where commands run
	Secret string // of the job, in hexadecimal
	Slots  int    // how many commands may run at a time
	Input  []byte `json:"-"` // each command's stdin, nil for an empty one; sent in frames of its own
	// Interfaces are those that the job may use. The host must have one of them. Empty: any.
	Interfaces []string `json:",omitempty"`
	// Leaves: if the agent sends a going note, the job goes on without the host.
	Leaves bool `json:",omitempty"`
}

// Readiness is an agent's report about its host.
type Readiness struct {
	PID int
	// Launcher is the address from which ssh came, as this host sees it; empty if unknown.
	Launcher string `json:",omitempty"`
	// Interfaces are the job's interfaces that the host has.
	Interfaces []string `json:",omitempty"`
}

// Greet writes the line that begins one direction.
func Greet(w io.Writer, who, path string) error {
	_, err := fmt.Fprintf(w, "%s %d %s %s\n", who, Protocol, Build(), path)
	return err
}

// Greeting is the content of that line.
type Greeting struct {
	protocol      int
	Version, Path string // Version is Build's result
}

// ParseGreeting reads the line of who, and reports whether it is one.
func ParseGreeting(who, line string) (g Greeting, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), who+" ")
	if !ok {
		return g, false
	}
	fields := strings.SplitN(rest, " ", 3)
	if len(fields) < 2 {
		return g, false
	}
	if _, err := fmt.Sscanf(fields[0], "%d", &g.protocol); err != nil {
		return g, false
	}
	g.Version = fields[1]
	if len(fields) > 2 {
		g.Path = fields[2]
	}
	return g, true
}

// Same reports whether the other end is this version.
func (g Greeting) Same() bool { return g.protocol == Protocol && g.Version == Build() }

// ErrLineTooLong is the error for a line that is too long for a greeting.
var ErrLineTooLong = errors.New("the line is too long")

// ReadLine reads a line of at most most bytes.
func ReadLine(r *bufio.Reader, most int) (string, error) {
	var b strings.Builder
	for {
		c, err := r.ReadByte()
		if err != nil {
			return b.String(), err
		}
		b.WriteByte(c)
		if c == '\n' {
			return b.String(), nil
		}
		if b.Len() >= most {
			return b.String(), ErrLineTooLong
		}
	}
}

// Sender writes frames, one at a time. Any goroutine may send.
type Sender struct {
	mu  sync.Mutex
	W   io.Writer
	buf []byte
}

func (s *Sender) Send(n Note) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return s.frame(noteFrame, nil, body)
}

// SendJob sends an agent its assignment.
func (s *Sender) SendJob(job Assignment) error {
	for piece := range slices.Chunk(job.Input, inputPiece) {
		if err := s.frame(inputFrame, nil, piece); err != nil {
			return err
		}
	}
	return s.Send(Note{Type: JobNote, Job: &job})
}

func (s *Sender) SendOutput(id, stream int, p []byte) error {
	head := append(binary.AppendUvarint(nil, uint64(id)), byte(stream))
	return s.frame(outputFrame, head, p)
}

func (s *Sender) frame(kind byte, head, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = binary.BigEndian.AppendUint32(s.buf[:0], uint32(1+len(head)+len(body)))
	s.buf = append(append(append(s.buf, kind), head...), body...)
	_, err := s.W.Write(s.buf)
	return err
}

// Frame is a received frame. Its input and output are valid until the next frame is read.
type Frame struct {
	Note  *Note
	Input []byte
	// of output
	ID, Stream int
	Data       []byte
}

// Receiver reads frames.
type Receiver struct {
	R   *bufio.Reader
	buf []byte
}

func (r *Receiver) Next() (f Frame, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r.R, head[:]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > MaxFrame {
		return f, fmt.Errorf("a frame of %d bytes", n)
	}
	if n--; cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	body := r.buf[:n]
	if _, err := io.ReadFull(r.R, body); err != nil {
		return f, err
	}
	switch head[4] {
	case noteFrame:
		f.Note = &Note{}
		if err := json.Unmarshal(body, f.Note); err != nil {
			return f, fmt.Errorf("a note: %w", err)
		}
	case inputFrame:
		f.Input = body
	case outputFrame:
		id, used := binary.Uvarint(body)
		if used <= 0 || used == len(body) || int(body[used]) >= spawn.Streams {
			return f, errors.New("output without its place")
		}
		f.ID, f.Stream, f.Data = int(id), int(body[used]), body[used+1:]
	default:
		return f, fmt.Errorf("a frame of kind %d", head[4])
	}
	return f, nil
}

// NoteOf converts an outcome for the wire; Outcome converts it back.
func NoteOf(id int, e spawn.Outcome) Note {
	n := Note{Type: EndedNote, ID: id, PID: e.PID, Signal: e.Signal, Code: e.Code}
	if !e.At.IsZero() {
		n.At = e.At.UnixNano()
	}
	if e.Err != nil {
		n.Text = e.Err.Error()
	}
	return n
}

// SetTime notes when an ended command has ended, by this host's clock.
func (n *Note) SetTime(at time.Time) { n.at = at }

func (n *Note) Outcome() spawn.Outcome {
	e := spawn.Outcome{PID: n.PID, Signal: n.Signal, Code: n.Code, At: n.at}
	if n.Text != "" {
		e.Err = errors.New(n.Text)
	}
	return e
}
