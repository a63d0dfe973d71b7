package drive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/test/leak"
	"github.com/gorovod/gorovod/test/transcript"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	limit = 20 * time.Second
	key   = "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f"
)

// TestTranscripts plays the conversations in testdata, one file each. KEY in a request stands for the job's key:
//
//	send [events=1]     send the requests below; print so many events
//	ready w=0 commit=3  a worker registers, as hvd.init() does
//	placed w=(0,1)      print the places that registered workers have got
//	asked w=1           print what the driver has said of the hosts to a worker that trains
//	end                 end the input
//	over                print how Run ends
//
// To accept the present output: go test ./internal/launch/drive -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Walk(t, "testdata", func(t *testing.T, path string) {
		c := converse(t)
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			switch d.Cmd {
			case "send":
				events := 0
				d.MaybeScanArg(t, "events", &events)
				return c.send(strings.ReplaceAll(d.Input, "KEY", key), events)
			case "ready":
				worker, commit := 0, -1
				d.ScanArg(t, "w", &worker)
				d.MaybeScanArg(t, "commit", &commit)
				c.ready(worker, int64(commit))
			case "placed":
				var b strings.Builder
				for _, v := range d.Args[0].Vals {
					id, err := strconv.Atoi(v)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintln(&b, c.placed(id))
				}
				return b.String()
			case "asked":
				worker := 0
				d.ScanArg(t, "w", &worker)
				return c.asked(worker)
			case "end":
				c.in.Close()
			case "over":
				return c.over()
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			}
			return ""
		})
	})
}

// conversation is a starter, and the workers, of one job.
type conversation struct {
	t       *testing.T
	in      *io.PipeWriter
	events  chan string
	ended   chan error
	addr    string
	clients map[int]*elastic.Client
	places  map[int]chan string
}

func converse(t *testing.T) *conversation {
	t.Helper()
	l := listen(t)
	requests, in := io.Pipe()
	out, written := io.Pipe()
	c := &conversation{t: t, in: in, events: make(chan string, 64), ended: make(chan error, 1), addr: l.Addr().String(),
		clients: map[int]*elastic.Client{}, places: map[int]chan string{}}
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			c.events <- s.Text()
		}
	}()
	go func() {
		err := Run(requests, written, func(Config) (Network, error) {
			return Network{Listeners: []net.Listener{l}, Meet: func() ([]net.Listener, func(string) []string, error) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				return []net.Listener{l}, func(string) []string { return []string{l.Addr().String()} }, err
			}, Environment: func(a membership.Start) map[string]string {
				return map[string]string{"HOROVOD_RANK": fmt.Sprint(a.Place.Rank),
					"HOROVOD_SIZE": fmt.Sprint(a.Place.Size)}
			}}, nil
		}, Watch{})
		l.Close()
		written.Close()
		requests.Close()
		c.ended <- err
	}()
	t.Cleanup(func() {
		in.Close()
		for _, w := range c.clients {
			w.Close()
		}
	})
	return c
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// send writes requests and returns the next events.
func (c *conversation) send(requests string, events int) string {
	c.t.Helper()
	if requests != "" {
		io.WriteString(c.in, requests+"\n")
	}
	var b strings.Builder
	for range events {
		select {
		case e := <-c.events:
			fmt.Fprintln(&b, e)
		case <-time.After(limit):
			c.t.Fatalf("no event comes after %s", b.String())
		}
	}
	return b.String()
}

func (c *conversation) ready(worker int, commit int64) {
	c.t.Helper()
	secret, err := config.ParseKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	w := c.clients[worker]
	if w == nil {
		w, err = elastic.Dial(context.Background(), []string{c.addr}, secret, elastic.Options{Worker: worker})
		if err != nil {
			c.t.Fatal(err)
		}
		c.clients[worker] = w
	}
	got := make(chan string, 1)
	c.places[worker] = got
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		a, err := w.Register(ctx, membership.Registration{Commit: commit})
		if err != nil {
			got <- fmt.Sprintf("worker %d: %v", worker, err)
			return
		}
		got <- fmt.Sprintf("worker %d: rank %d of %d in epoch %d", worker, a.Place.Rank, a.Place.Size, a.Epoch)
	}()
}

func (c *conversation) placed(worker int) string {
	c.t.Helper()
	select {
	case p := <-c.places[worker]:
		return p
	case <-time.After(limit):
		c.t.Fatalf("worker %d gets no place", worker)
		return ""
	}
}

func (c *conversation) asked(worker int) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.clients[worker].AwaitUpdates(ctx); err != nil {
		c.t.Fatal(err)
	}
	_, update := c.clients[worker].Updates()
	return fmt.Sprintln(update)
}

func (c *conversation) over() string {
	c.t.Helper()
	select {
	case err := <-c.ended:
		if err == nil {
			return "done\n"
		}
		return err.Error() + "\n"
	case <-time.After(limit):
		c.t.Fatal("Run does not end")
		return ""
	}
}

// A starter that no longer reads ends the job, because the driver does not wait for it.
func TestAnOutputThatBreaks(t *testing.T) {
	requests, in := io.Pipe()
	defer in.Close()
	broken := errors.New("broken")
	ended := make(chan error, 1)
	l := listen(t)
	go func() {
		ended <- Run(requests, failing{broken}, func(Config) (Network, error) {
			return Network{Listeners: []net.Listener{l},
				Environment: func(membership.Start) map[string]string { return nil }}, nil
		}, Watch{})
		requests.Close()
	}()
	fmt.Fprintf(in, `{"type":"config","version":1,"key":"%s","np":1}`+"\n", key)
	fmt.Fprintln(in, `{"type":"hosts","hosts":[{"name":"a","slots":1}]}`)
	select {
	case err := <-ended:
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	case <-time.After(limit):
		t.Fatal("Run does not end")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
