package remote

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// At a second signal a node kills its processes, whatever time they have asked for: here a worker that ignores SIGTERM.
func TestSecondSignalKillsANodesWorkers(t *testing.T) {
	in, orders := io.Pipe()
	news, out := io.Pipe()
	signals, ends := make(chan os.Signal), ending.New(spawn.LedTerms)
	ends.MayLeave(syscall.SIGTERM)
	a := &Agent{lost: make(chan struct{}), running: map[int]*reporter{}, own: true, ends: ends, signals: signals}
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.run(in, out)
	}()
	frames := &wire.Receiver{R: bufio.NewReader(news)}
	wire.ReadLine(frames.R, wire.MaxGreeting)
	wire.Greet(orders, wire.LauncherGreeting, "")
	s := &wire.Sender{W: orders}
	s.Send(wire.Note{Type: wire.JobNote, Job: &wire.Assignment{Host: "h", Secret: "00", Slots: 1, Leaves: true}})
	s.Send(wire.Note{Type: wire.StartNote, ID: 7, Command: &spawn.Command{Args: []string{"sh", "-c", `trap "" TERM; echo $$; sleep 1000`},
		Env: append(os.Environ(), spawn.ElasticVariable+"=1")}})
	text := ""
	for !strings.HasSuffix(text, "\n") {
		f, err := frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		text += string(f.Data)
	}
	go io.Copy(io.Discard, news)
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	signals <- syscall.SIGTERM
	began := time.Now()
	signals <- syscall.SIGTERM
	for syscall.Kill(pid, 0) == nil {
		if time.Sleep(10 * time.Millisecond); time.Since(began) > spawn.FarewellTime/2 {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("the worker lives on %v after the second signal", time.Since(began))
			break
		}
	}
	<-over
}
