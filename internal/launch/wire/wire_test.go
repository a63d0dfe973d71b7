package wire

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/spawn"
)

func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	s := &Sender{W: &b}
	s.Send(Note{Type: StartNote, ID: 1, Command: &spawn.Command{Args: []string{"x"}}})
	s.SendOutput(300, spawn.Stderr, []byte("text"))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 3 && in[0]|in[1] != 0 {
			return // longer frames only cost time
		}
		r := &Receiver{R: bufio.NewReader(bytes.NewReader(in))}
		for {
			f, err := r.Next()
			if err != nil {
				return
			}
			if f.Note == nil && (f.Stream < 0 || f.Stream >= spawn.Streams) {
				t.Fatalf("stream %d", f.Stream)
			}
		}
	})
}

// The first line of another version, or of a shell that is no agent, is not taken for a greeting, or names its version.
func FuzzGreeting(f *testing.F) {
	f.Add("gorovod-agent 1 0.1 /usr/bin/gorovod\n")
	f.Add("gorovod-agent 99999999999999999999 x")
	f.Add("Welcome to Ubuntu\r\n")
	f.Fuzz(func(t *testing.T, line string) {
		if g, ok := ParseGreeting(AgentGreeting, line); ok && (g.Version == "" && strings.Count(line, " ") < 2 ||
			!strings.HasPrefix(line, AgentGreeting)) {
			t.Errorf("%q is a greeting: %+v", line, g)
		}
		ReadLine(bufio.NewReader(strings.NewReader(line)), MaxGreeting)
	})
}
