package world

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/core/engine"
)

const messageTag, talkTag = 7, 8

// An exchange is what a rank does with rank 0, which leaves.
type exchange struct {
	name string
	sent bool // rank 0 sends a message before it leaves
	call func(ctx context.Context, w *World) error
	// works says that the call gets what has been sent.
	works bool
}

func receive(ctx context.Context, w *World) error {
	_, _, err := w.Recv(ctx, 0, messageTag, make([]byte, 8))
	return err
}

// receiveInGroup receives from rank 0 or from this one, while other ranks are there.
func receiveInGroup(ctx context.Context, w *World) error {
	_, _, _, err := w.RecvAny(ctx, []int{0, w.Place.Rank}, messageTag, make([]byte, 8))
	return err
}

// then makes a call after one that must work.
func then(first, call func(ctx context.Context, w *World) error) func(ctx context.Context, w *World) error {
	return func(ctx context.Context, w *World) error {
		if err := first(ctx, w); err != nil {
			return fmt.Errorf("the first call: %w", err)
		}
		return call(ctx, w)
	}
}

// sendMuch sends more than rank 0 and the sockets keep.
func sendMuch(ctx context.Context, w *World) error {
	return w.Send(ctx, 0, messageTag, 0, make([]byte, 64<<20))
}

var exchanges = []exchange{
	{name: "receive", call: receive},
	{name: "receive what was sent", sent: true, call: receive, works: true},
	{name: "receive more than was sent", sent: true, call: then(receive, receive)},
	{name: "send", call: sendMuch},
	{name: "receive from a group", call: receiveInGroup},
	{name: "receive from a group what was sent", sent: true, call: receiveInGroup, works: true},
	{name: "receive from a group more than was sent", sent: true, call: then(receiveInGroup, receiveInGroup)},
}

// A message that a rank has sent before it leaves arrives. Calls that need more of that rank fail and name it, whether
// they begin before it leaves or later. The others still exchange messages.
func TestMessagesWithARankThatHasLeft(t *testing.T) {
	asProcesses(t)
	for _, transport := range []string{"shm", "tcp", "on aaaabbbb"} {
		for _, when := range []string{"before", "after"} {
			t.Run(transport+"/calls "+when, func(t *testing.T) {
				l := newLauncher(t, 1+len(exchanges))
				left := make(chan struct{})
				var talked sync.WaitGroup
				talked.Add(len(exchanges))
				each(1+len(exchanges), func(r int) {
					w, err := join(context.Background(), l.config(r, 1+len(exchanges), transport), 1, quiet())
					if err != nil {
						t.Fatalf("rank %d: %v", r, err)
					}
					defer w.Leave(limit)
					if r == 0 {
						sendBefore(t, w)
						if when == "before" {
							time.Sleep(300 * time.Millisecond) // the calls have begun, as a rule
						}
						w.Leave(limit)
						close(left)
						return
					}
					if when == "after" {
						<-left
					}
					x := exchanges[r-1]
					checkEnd(t, x.name, x.call, w, x.works)
					<-left
					talk(t, w)
					talked.Done()
					talked.Wait()
				})
			})
		}
	}
}

// sendBefore is what rank 0 sends.
func sendBefore(t *testing.T, w *World) {
	for i, x := range exchanges {
		if !x.sent {
			continue
		}
		if err := w.Send(t.Context(), 1+i, messageTag, 0, []byte("sent")); err != nil {
			t.Error(err)
		}
	}
}

// checkEnd checks that a call ends, and how.
func checkEnd(t *testing.T, name string, call func(context.Context, *World) error, w *World, works bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := call(ctx, w)
	if works {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	if told := strings.TrimSuffix(engine.LeftText("rank 0"), "."); err == nil || !strings.Contains(err.Error(), told) {
		t.Errorf("%s: %v", name, err)
	}
}

// talk exchanges messages among the ranks from 1, each of which calls it.
func talk(t *testing.T, w *World) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, p := w.Place.Rank, make([]byte, 1)
	if err := w.Send(ctx, 1+r%len(exchanges), talkTag, 0, []byte{byte(r)}); err != nil {
		t.Error(err)
	}
	from, _, _, err := w.RecvAny(ctx, nil, talkTag, p)
	if err != nil || int(p[0]) != from || 1+from%len(exchanges) != r {
		t.Errorf("rank %d: %v from rank %d, %v", r, p, from, err)
	}
}

// A receive from any rank goes on while another one is there. It fails when the last one leaves.
func TestReceiveFromAnyUntilTheLastLeaves(t *testing.T) {
	asProcesses(t)
	const ranks = 3
	fromAny := func(ctx context.Context, w *World) error {
		_, _, _, err := w.RecvAny(ctx, nil, messageTag, make([]byte, 8))
		return err
	}
	for _, transport := range []string{"shm", "tcp", "on aab"} {
		t.Run(transport, func(t *testing.T) {
			l := newLauncher(t, ranks)
			received := make(chan struct{})
			each(ranks, func(r int) {
				w, err := join(context.Background(), l.config(r, ranks, transport), 1, quiet())
				if err != nil {
					t.Fatalf("rank %d: %v", r, err)
				}
				defer w.Leave(limit)
				switch r {
				case 1:
					checkEnd(t, "while rank 2 is there", fromAny, w, true)
					close(received)
					checkEnd(t, "while nobody is there", fromAny, w, false)
				case 2:
					time.Sleep(2 * time.Second) // rank 0 has left, and rank 1 has had the time to notice
					if err := w.Send(t.Context(), 1, messageTag, 0, []byte("sent")); err != nil {
						t.Error(err)
					}
					<-received
				}
			})
		})
	}
}
