package dashboard

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/overview"
	"github.com/gorovod/gorovod/test/leak"
)

// TestLocalReaders reads a job over the socket of this process, up to the job's end. Before the first reader, the ranks
// are not asked for figures.
func TestLocalReaders(t *testing.T) {
	before := leak.Now()
	job := overview.New()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		job.Run(over)
		close(done)
	}()
	asked := make(chan struct{}, 1000)
	job.Form(2, 0, func() int { return 0 }, func() { asked <- struct{}{} })
	job.SetLines(func(int) (string, string, bool) { return "out", "", true })
	s, err := OpenLocal(job)
	if err != nil {
		t.Fatal(err)
	}
	s.view.farewell = time.Minute
	time.Sleep(3 * overview.Every)
	if len(asked) > 0 {
		t.Error("the ranks are asked though nobody looks")
	}
	names, err := door.Locals()
	if err != nil {
		t.Fatal(err)
	}
	c, err := door.DialLocal(os.Getpid(), names[os.Getpid()], time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	lines := bufio.NewScanner(answer.Body)
	expect := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("no %s: %v", want, lines.Err())
	}
	expect("event: past")
	expect("event: now")
	<-asked
	last, err := door.DialLocal(os.Getpid(), names[os.Getpid()], time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(last, "GET /lines?rank=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if text, _ := io.ReadAll(last); !strings.Contains(string(text), `"stdout":"out"`) {
		t.Errorf("%s", text)
	}
	job.End(overview.Ending{Code: 3, Text: "why"})
	ended := make(chan struct{})
	go func() {
		s.Close()
		close(ended)
	}()
	expect("event: end")
	expect(`data: {"code":3,"text":"why"}`)
	<-ended
	for _, c := range []net.Conn{c, last} {
		c.Close()
	}
	close(over)
	<-done
	before.Check(t)
}
