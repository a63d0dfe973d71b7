package meet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// speaker is one conversation by the PMI wire protocol: commands of one line each, and their answers in turn. The
// barrier is the exception: a process that waits there may send other commands, and barrier_out comes among their
// answers.
type speaker struct {
	conn    net.Conn
	lines   chan string // the lines of the process manager; closed when trouble is set
	trouble error
	closed  chan struct{}
	passed  bool   // barrier_out has come before answer waited for it
	owed    int    // answers to notify that have not come
	space   string // the name of the key-value space
	longest int    // the longest value in bytes, with C's final zero
}

// errRefused: the answer is of the right kind, but reports a failure.
var errRefused = errors.New("refused")

// dialPMI begins a conversation over a descriptor that the process inherits.
func dialPMI(ctx context.Context, fd int) (*speaker, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("PMI_FD=%d: %w", fd, err)
	}
	socket := os.NewFile(uintptr(dup), "PMI")
	conn, err := net.FileConn(socket)
	socket.Close()
	if err != nil {
		return nil, fmt.Errorf("PMI_FD=%d: %w", fd, err)
	}
	s := newSpeaker(conn)
	if err := s.begin(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func newSpeaker(conn net.Conn) *speaker {
	s := &speaker{conn: conn, lines: make(chan string), closed: make(chan struct{})}
	end := func(trouble error) {
		s.trouble = trouble
		close(s.lines)
	}
	guard.Go("the reader of PMI", end, func() { end(s.listen()) })
	return s
}

// close ends the conversation and listen. It is called once.
func (s *speaker) close() {
	close(s.closed)
	s.conn.Close()
}

// listen reads until the connection ends, and returns why it ended.
func (s *speaker) listen() error {
	for lines := bufio.NewReaderSize(s.conn, 4<<10); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			if err == io.EOF {
				err = errors.New("the process manager has closed the connection")
			}
			return err
		}
		select {
		case s.lines <- string(line):
		case <-s.closed:
			return nil
		}
	}
}

func (s *speaker) begin(ctx context.Context) error {
	if _, err := s.ask(ctx, "init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return err
	}
	limits, err := s.ask(ctx, "get_maxes", "maxes")
	if err != nil {
		return err
	}
	if s.longest, err = strconv.Atoi(limits["vallen_max"]); err != nil {
		return errors.New("get_maxes is answered with a vallen_max that is no number")
	}
	name, err := s.ask(ctx, "get_my_kvsname", "my_kvsname")
	s.space = name["kvsname"]
	return err
}

// ask sends a command and waits for the answer, which must be of the given kind. No error shows the command or the
// answer, because they may hold the secret.
func (s *speaker) ask(ctx context.Context, command, kind string) (map[string]string, error) {
	if err := s.say(ctx, command); err != nil {
		return nil, err
	}
	return s.answer(ctx, command, kind)
}

// say sends a command.
func (s *speaker) say(ctx context.Context, command string) error {
	if deadline, bounded := ctx.Deadline(); bounded {
		s.conn.SetWriteDeadline(deadline)
	}
	if _, err := fmt.Fprintf(s.conn, "cmd=%s\n", command); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.DeadlineExceeded
		}
		return fmt.Errorf("%s: %w", verb(command), err)
	}
	return nil
}

// notify sends a command to the name service. Only finish waits for its answer.
func (s *speaker) notify(ctx context.Context, command string) error {
	err := s.say(ctx, command)
	if err == nil {
		s.owed++
	}
	return err
}

// finish sends finalize. It waits for all answers first: Hydra's proxy ends the job if it cannot deliver an answer.
func (s *speaker) finish(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for s.owed > 0 {
		if _, err := s.next(drain); err != nil {
			break // the process manager has no name service
		}
	}
	_, err := s.ask(ctx, "finalize", "finalize_ack")
	return err
}

// drainLimit bounds finish's wait for answers.
const drainLimit = 2 * time.Second

// next returns the next line, without the answers to notify.
func (s *speaker) next(ctx context.Context) (map[string]string, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case line, more := <-s.lines:
		if !more {
			return nil, s.trouble
		}
		answer := make(map[string]string)
		for _, field := range strings.Fields(line) {
			name, value, _ := strings.Cut(field, "=")
			answer[name] = value
		}
		if cmd := answer["cmd"]; s.owed > 0 && (cmd == "publish_result" || cmd == "unpublish_result") {
			s.owed--
			return nil, nil
		}
		return answer, nil
	}
}

// answer waits for the answer to a command.
func (s *speaker) answer(ctx context.Context, command, kind string) (map[string]string, error) {
	for kind != "barrier_out" || !s.passed {
		answer, err := s.next(ctx)
		if err != nil {
			return nil, fmt.Errorf("the answer to %s: %w", verb(command), err)
		}
		switch cmd := answer["cmd"]; {
		case answer == nil:
			continue
		case cmd == "barrier_out" && kind != cmd:
			s.passed = true
			continue
		case cmd != kind:
			return nil, fmt.Errorf("%s is not answered with %s", verb(command), kind)
		}
		switch rc, told := answer["rc"]; {
		case !told || rc == "0":
			return answer, nil
		default:
			n, err := strconv.Atoi(rc)
			if err != nil {
				return nil, fmt.Errorf("%s is not answered with %s", verb(command), kind)
			}
			return nil, fmt.Errorf("%s is %w: rc=%d", verb(command), errRefused, n)
		}
	}
	s.passed = false
	return nil, nil
}

// verb is the first word of a command.
func verb(command string) string {
	v, _, _ := strings.Cut(command, " ")
	return v
}
