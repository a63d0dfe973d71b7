package launch

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

// The launcher and the agent on another host speak through an ssh's stdin and stdout. Each end first sends a line with
// its version. Ends of different versions exchange nothing more. Frames follow: four bytes of length (big endian), a
// byte of kind, and the body.
//
// Output never blocks other frames: each end sends only as many bytes of a stream as the other has granted by credits,
// so the other end has room for them.

// agentProtocol changes whenever the frames change.
const agentProtocol = 5

const (
	agentGreeting    = "gorovod-agent"
	launcherGreeting = "gorovod-launcher"
	// nobodyGreeting is the answer of a shell that finds no agent.
	nobodyGreeting = "gorovod-agent is none of:"
)

const (
	maxGreeting = 1 << 10
	maxNoise    = 64 << 10 // before the agent's greeting, for what a login shell prints
	maxFrame    = 64 << 20
	// streamWindow is the most bytes of one stream that are under way.
	streamWindow = 256 << 10
	// inputPiece is the most bytes of the job's input in a frame; the input may be larger than any frame.
	inputPiece = 1 << 20
	// grantAt is how many bytes must have been read before one message grants them again.
	grantAt = streamWindow / 4
)

// The kinds of frames.
const (
	noteFrame   = 'n' // a note in JSON
	outputFrame = 'o' // uvarint id, stream byte, bytes; without bytes it is the stream's end
	inputFrame  = 'i' // bytes: a piece of the job's Input, before the job's note
)

// note is every frame but output. Type says which fields have a meaning.
type note struct {
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

	Job   *assignment `json:",omitempty"`
	Ready *readiness  `json:",omitempty"`
	Query *query      `json:",omitempty"`
	Reply []byte      `json:",omitempty"`
}

// The types of notes: first the launcher's, then the agent's.
const (
	jobNote    = "job"    // Job, once, before all others
	startNote  = "start"  // ID, Command
	signalNote = "signal" // ID, Signal
	creditNote = "credit" // ID, Stream, Bytes: how many more bytes may be sent
	pingNote   = "ping"
	queryNote  = "query" // ID, Query
	// outcomeNote: Code is the job's exit code. It is the last note.
	outcomeNote = "outcome"
	// Either end may send a refused note. It ends the conversation.

	readyNote   = "ready"   // Ready: the agent has taken the job
	refusedNote = "refused" // Text: why the agent refuses the job, or gives up
	startedNote = "started" // ID, PID, At
	endedNote   = "ended"   // ID, PID, Signal, Code, At; Text if the command could not start
	goneNote    = "gone"    // ID
	overNote    = "over"    // ID
	pongNote    = "pong"    // At
	replyNote   = "reply"   // ID, Reply; Text if there is no reply
	goingNote   = "going"   // Text: why the host is to leave the job
)

// assignment is the job's data for an agent.
type assignment struct {
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

// readiness is an agent's report about its host.
type readiness struct {
	PID int
	// Launcher is the address from which ssh came, as this host sees it; empty if unknown.
	Launcher string `json:",omitempty"`
	// Interfaces are the job's interfaces that the host has.
	Interfaces []string `json:",omitempty"`
}

// greet writes the line that begins one direction.
func greet(w io.Writer, who, path string) error {
	_, err := fmt.Fprintf(w, "%s %d %s %s\n", who, agentProtocol, build(), path)
	return err
}

// greeting is the content of that line.
type greeting struct {
	protocol      int
	version, path string // version is build's result
}

func parseGreeting(who, line string) (g greeting, ok bool) {
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
	g.version = fields[1]
	if len(fields) > 2 {
		g.path = fields[2]
	}
	return g, true
}

// same reports whether the other end is this version.
func (g greeting) same() bool { return g.protocol == agentProtocol && g.version == build() }

// errLineTooLong is the error for a line that is too long for a greeting.
var errLineTooLong = errors.New("the line is too long")

// readLine reads a line of at most most bytes.
func readLine(r *bufio.Reader, most int) (string, error) {
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
			return b.String(), errLineTooLong
		}
	}
}

// sender writes frames, one at a time. Any goroutine may send.
type sender struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

func (s *sender) note(n note) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return s.frame(noteFrame, nil, body)
}

// job sends an agent its assignment.
func (s *sender) job(job assignment) error {
	for piece := range slices.Chunk(job.Input, inputPiece) {
		if err := s.frame(inputFrame, nil, piece); err != nil {
			return err
		}
	}
	return s.note(note{Type: jobNote, Job: &job})
}

func (s *sender) output(id, stream int, p []byte) error {
	head := append(binary.AppendUvarint(nil, uint64(id)), byte(stream))
	return s.frame(outputFrame, head, p)
}

func (s *sender) frame(kind byte, head, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = binary.BigEndian.AppendUint32(s.buf[:0], uint32(1+len(head)+len(body)))
	s.buf = append(append(append(s.buf, kind), head...), body...)
	_, err := s.w.Write(s.buf)
	return err
}

// frame is a received frame. Its input and output are valid until the next frame is read.
type frame struct {
	note  *note
	input []byte
	// of output
	id, stream int
	data       []byte
}

// receiver reads frames.
type receiver struct {
	r   *bufio.Reader
	buf []byte
}

func (r *receiver) next() (f frame, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > maxFrame {
		return f, fmt.Errorf("a frame of %d bytes", n)
	}
	if n--; cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	body := r.buf[:n]
	if _, err := io.ReadFull(r.r, body); err != nil {
		return f, err
	}
	switch head[4] {
	case noteFrame:
		f.note = &note{}
		if err := json.Unmarshal(body, f.note); err != nil {
			return f, fmt.Errorf("a note: %w", err)
		}
	case inputFrame:
		f.input = body
	case outputFrame:
		id, used := binary.Uvarint(body)
		if used <= 0 || used == len(body) || int(body[used]) >= spawn.Streams {
			return f, errors.New("output without its place")
		}
		f.id, f.stream, f.data = int(id), int(body[used]), body[used+1:]
	default:
		return f, fmt.Errorf("a frame of kind %d", head[4])
	}
	return f, nil
}

// noteOf converts an outcome for the wire; outcome converts it back.
func noteOf(id int, e spawn.Outcome) note {
	n := note{Type: endedNote, ID: id, PID: e.PID, Signal: e.Signal, Code: e.Code}
	if !e.At.IsZero() {
		n.At = e.At.UnixNano()
	}
	if e.Err != nil {
		n.Text = e.Err.Error()
	}
	return n
}

func (n *note) outcome() spawn.Outcome {
	e := spawn.Outcome{PID: n.PID, Signal: n.Signal, Code: n.Code, At: n.at}
	if n.Text != "" {
		e.Err = errors.New(n.Text)
	}
	return e
}
