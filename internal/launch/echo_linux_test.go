package launch

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A program that signals a process and then its group has sent one signal. A signal of another number counts at once.
func TestEchoesOfSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw, out := make(chan os.Signal), make(chan os.Signal, 16)
		go withoutEchoes(raw, out)
		for _, s := range []struct {
			after time.Duration
			sig   syscall.Signal
		}{
			{0, syscall.SIGTERM}, {time.Millisecond, syscall.SIGTERM}, {time.Millisecond, syscall.SIGINT},
			{echoTime - 3*time.Millisecond, syscall.SIGTERM}, {2 * time.Millisecond, syscall.SIGTERM},
		} {
			time.Sleep(s.after)
			raw <- s.sig
		}
		close(raw)
		synctest.Wait()
		close(out)
		var got []os.Signal
		for s := range out {
			got = append(got, s)
		}
		if want := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM}; !slices.Equal(got, want) {
			t.Errorf("%v count, want %v", got, want)
		}
	})
}

// At a second signal a node kills its processes, whatever time they have asked for: here a worker that ignores SIGTERM.
func TestSecondSignalKillsANodesWorkers(t *testing.T) {
	in, orders := io.Pipe()
	news, out := io.Pipe()
	going := make(chan string)
	a := &agent{lost: make(chan struct{}), running: map[int]*reporter{}, own: true, going: going}
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.run(in, out)
	}()
	frames := &receiver{r: bufio.NewReader(news)}
	readLine(frames.r, maxGreeting)
	greet(orders, launcherGreeting, "")
	s := &sender{w: orders}
	s.note(note{Type: jobNote, Job: &assignment{Host: "h", Secret: "00", Slots: 1, Leaves: true}})
	s.note(note{Type: startNote, ID: 7, Command: &command{Args: []string{"sh", "-c", `trap "" TERM; echo $$; sleep 1000`},
		Env: append(os.Environ(), elasticVariable+"=1")}})
	text := ""
	for !strings.HasSuffix(text, "\n") {
		f, err := frames.next()
		if err != nil {
			t.Fatal(err)
		}
		text += string(f.data)
	}
	go io.Copy(io.Discard, news)
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	going <- "its launcher got SIGTERM"
	began := time.Now()
	going <- ""
	for syscall.Kill(pid, 0) == nil {
		if time.Sleep(10 * time.Millisecond); time.Since(began) > farewellTime/2 {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("the worker lives on %v after the second signal", time.Since(began))
			break
		}
	}
	<-over
}
