package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/test/output"
)

// terminal makes a terminal with this many columns. The buffer has the text that is written to it.
func terminal(t *testing.T, columns uint16) (*os.File, *output.Buffer) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	near := os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	far, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	s, done := &output.Buffer{}, make(chan struct{})
	go func() {
		defer close(done)
		for p := make([]byte, 4096); ; {
			n, err := near.Read(p)
			s.Write(p[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		far.Close() // then the reader's end is at its end, too
		<-done
		near.Close()
	})
	return far, s
}

// soon and never are the paces of tests.
var (
	soon  = pace{every: time.Millisecond}
	never = pace{every: time.Millisecond, first: time.Hour}
)

// The line is written over, gives way to other output, and disappears.
func TestDrawn(t *testing.T) {
	to, got := terminal(t, 40)
	l := open(to, func(text string) { t.Error("said:", text) }, soon, soon)
	defer l.Close()
	var done atomic.Int64
	l.Wait(func() (string, bool) { return fmt.Sprintf("%d of 2", done.Load()), true })
	got.Await(t, "the first news", func(s string) bool { return strings.HasSuffix(s, erase+"0 of 2") })
	done.Add(1)
	got.Await(t, "the next news", func(s string) bool { return strings.HasSuffix(s, erase+"1 of 2") })
	over := l.Over(to)
	io.WriteString(over, "rank 0 speaks\n")
	got.Await(t, "another's line", func(s string) bool { return strings.Contains(s, erase+"rank 0 speaks\r\n") })
	got.Await(t, "the line below it", func(s string) bool { return strings.HasSuffix(s, erase+"1 of 2") })
	l.Close()
	got.Await(t, "the end", func(s string) bool { return strings.HasSuffix(s, erase+"1 of 2"+erase) })
}

// A short wait is not drawn.
func TestSoonOver(t *testing.T) {
	to, got := terminal(t, 40)
	l := open(to, nil, never, soon)
	asked := make(chan struct{})
	var once sync.Once
	l.Wait(func() (string, bool) {
		once.Do(func() { close(asked) })
		return "away", true
	})
	<-asked
	l.Close()
	if s := got.String(); s != "" {
		t.Errorf("the terminal got %q", s)
	}
}

// Without a terminal each text is said once, until the wait is over.
func TestSaid(t *testing.T) {
	said := make(chan string, 64)
	var news atomic.Value
	news.Store("one")
	var looks atomic.Int64
	l := open(&bytes.Buffer{}, func(text string) { said <- text }, never, soon)
	defer l.Close()
	l.Wait(func() (string, bool) {
		looks.Add(1)
		return news.Load().(string), news.Load() != "three"
	})
	for _, want := range []string{"one", "two"} {
		news.Store(want)
		select {
		case text := <-said:
			if text != want {
				t.Errorf("said %q, want %q", text, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q is not said", want)
		}
	}
	news.Store("three")
	var at int64
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if now := looks.Load(); now == at {
			break // no wait asks for news any more
		} else {
			at = now
		}
		if time.Now().After(end) {
			t.Fatal("the news are asked for although the wait is over")
		}
	}
	if len(said) > 0 {
		t.Errorf("said besides: %q", <-said)
	}
}

// A line fits into the terminal, and has no control characters.
func TestFit(t *testing.T) {
	for text, want := range map[string]string{
		"short":                 "short",
		"ten of ten":            "ten of ten",
		" two\nlines\t":         "two lines",
		"a\x1b[2Jb":             `a\x1b[2Jb`,
		"ünïcödé is 1 column a": "ünïcödé i…",
	} {
		if got := fit(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := fit("text", 0); got != "" && got != "…" {
		t.Errorf("in no columns: %q", got)
	}
}

// A nil Line shows nothing.
func TestNil(t *testing.T) {
	var l *Line
	l.Wait(func() (string, bool) { return "", true })
	l.Done()
	var b bytes.Buffer
	if l.Over(&b) != io.Writer(&b) {
		t.Error("Over of nil")
	}
	l.Close()
}
