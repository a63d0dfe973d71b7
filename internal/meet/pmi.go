package meet

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pmi is a board in the key-value space of a process manager, by version 1 of the PMI
// wire protocol: lines of name=value pairs over a socket that the process inherits. All
// ranks use it together and once: there is a barrier between writing and reading. The
// process manager takes a process that has begun to speak and ends without a last
// word for a crash, so that word is said at once; MPI cannot be initialised in the
// process after that.
type pmi struct {
	fd int
}

const pmiKey = "gorovod-rendezvous"

func newPMI(fd string) (*pmi, error) {
	n, err := strconv.Atoi(fd)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("PMI_FD=%q is no file descriptor", fd)
	}
	return &pmi{n}, nil
}

func (p *pmi) String() string { return "PMI" }

// Publish takes part in the barrier, which the others do in Read.
func (p *pmi) Publish(ctx context.Context, o Offer) (withdraw func(), err error) {
	return func() {}, p.talk(ctx, func(s *speaker) error {
		for {
			text, err := json.Marshal(o)
			if err != nil {
				return err
			}
			value := base64.RawURLEncoding.EncodeToString(text)
			if len(value) < s.longest {
				_, err := s.ask("put kvsname="+s.space+" key="+pmiKey+" value="+value, "put_result")
				if err != nil {
					return err
				}
				break
			}
			if len(o.Addrs) < 2 {
				return fmt.Errorf("a value of %d bytes, and the process manager takes %d", len(value), s.longest)
			}
			o.Addrs = o.Addrs[:len(o.Addrs)-1] // the likeliest come first
		}
		_, err := s.ask("barrier_in", "barrier_out")
		return err
	})
}

// Read takes part in the barrier, and reads.
func (p *pmi) Read(ctx context.Context, stale *Offer) (o Offer, err error) {
	if stale != nil {
		return o, errors.New("rank 0's rendezvous is gone")
	}
	err = p.talk(ctx, func(s *speaker) error {
		if _, err := s.ask("barrier_in", "barrier_out"); err != nil {
			return err
		}
		answer, err := s.ask("get kvsname="+s.space+" key="+pmiKey, "get_result")
		if err != nil {
			return err
		}
		text, err := base64.RawURLEncoding.DecodeString(answer["value"])
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			return errors.New("rank 0 has left something else under this name")
		}
		return nil
	})
	return o, err
}

// speaker is one conversation.
type speaker struct {
	conn    net.Conn
	lines   *bufio.Reader
	space   string // the name of the key-value space
	longest int    // of a value, in bytes, with the zero that C puts behind it
}

// talk begins a conversation, has f go on, and ends it.
func (p *pmi) talk(ctx context.Context, f func(*speaker) error) error {
	dup, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("PMI_FD=%d: %w", p.fd, err)
	}
	socket := os.NewFile(uintptr(dup), "PMI")
	conn, err := net.FileConn(socket)
	socket.Close()
	if err != nil {
		return fmt.Errorf("PMI_FD=%d: %w", p.fd, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	s := &speaker{conn: conn, lines: bufio.NewReaderSize(conn, 4<<10)}
	if err = s.begin(); err == nil {
		err = f(s)
	}
	if err == nil {
		_, err = s.ask("finalize", "finalize_ack")
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("PMI: not all ranks have come: %w", ctx.Err())
	}
	return fmt.Errorf("PMI: %w", err)
}

func (s *speaker) begin() error {
	if _, err := s.ask("init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return err
	}
	limits, err := s.ask("get_maxes", "maxes")
	if err != nil {
		return err
	}
	if s.longest, err = strconv.Atoi(limits["vallen_max"]); err != nil {
		return errors.New("get_maxes is answered with a vallen_max that is no number")
	}
	name, err := s.ask("get_my_kvsname", "my_kvsname")
	s.space = name["kvsname"]
	return err
}

// ask sends a command and reads the answer, which must be of a kind. No error shows
// what was said: it may be the secret.
func (s *speaker) ask(command, kind string) (map[string]string, error) {
	verb, _, _ := strings.Cut(command, " ")
	if _, err := fmt.Fprintf(s.conn, "cmd=%s\n", command); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	line, err := s.lines.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("the answer to %s: %w", verb, err)
	}
	answer := make(map[string]string)
	for _, field := range strings.Fields(string(line)) {
		name, value, _ := strings.Cut(field, "=")
		answer[name] = value
	}
	if rc, told := answer["rc"]; answer["cmd"] != kind || told && rc != "0" {
		if n, err := strconv.Atoi(rc); answer["cmd"] == kind && err == nil {
			return nil, fmt.Errorf("%s is refused: rc=%d", verb, n)
		}
		return nil, fmt.Errorf("%s is not answered with %s", verb, kind)
	}
	return answer, nil
}
