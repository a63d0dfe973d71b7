package p2p

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// parting is a world whose ranks learn that somebody has left once the function is called.
func parting(t *testing.T, size int) (endpoints []*Endpoint, part func()) {
	var left atomic.Bool
	endpoints = world(t, size, func(_ int, c *Config) { c.Left = left.Load })
	return endpoints, func() { left.Store(true) }
}

// ending starts a call, and returns where its error comes.
func ending(call func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- call() }()
	return c
}

func await(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatal("the call does not end")
		return nil
	}
}

func wantLeft(t *testing.T, what string, err error, rank int) {
	t.Helper()
	left := (*Left)(nil)
	if !errors.As(err, &left) || left.Rank != rank {
		t.Errorf("%s: %v", what, err)
	}
}

// A rank that has never connected to this one leaves: calls that concern it end, others go on.
func TestCallsToARankThatHasLeftWithoutAWord(t *testing.T) {
	for _, order := range []string{"calls before", "calls after"} {
		t.Run(order, func(t *testing.T) {
			endpoints, part := parting(t, 3)
			m := endpoints[0]
			leave := func() { endpoints[1].Close(); part() }
			if order == "calls after" {
				leave()
			}
			calls := map[string]<-chan error{
				"receive": ending(func() error {
					_, _, err := m.Recv(context.Background(), 1, 1, nil)
					return err
				}),
				"receive from any of a group": ending(func() error {
					_, _, _, err := m.RecvAny(context.Background(), []int{0, 1}, 2, nil)
					return err
				}),
			}
			living := ending(func() error {
				_, _, _, err := m.RecvAny(context.Background(), nil, 3, nil)
				return err
			})
			if order == "calls before" {
				eventually(t, func() bool { return m.boxes[1].waitingFor(1) })
				leave()
			}
			for what, c := range calls {
				wantLeft(t, what, await(t, c), 1)
			}
			wantLeft(t, "send", m.Send(limited(t), 1, 1, 0, nil), 1)
			mustSend(t, endpoints[2], 0, 3, nil)
			if err := await(t, living); err != nil {
				t.Error(err)
			}
			last := ending(func() error {
				_, _, _, err := m.RecvAny(context.Background(), nil, 3, nil)
				return err
			})
			endpoints[2].Close()
			if err := await(t, last); err == nil || !strings.Contains(err.Error(), "no other rank is left to send it") {
				t.Error(err)
			}
		})
	}
}

// A rank that is still there when another one leaves, and dies later without a word, ends those that wait for it.
func TestDeathAfterAnotherHasLeft(t *testing.T) {
	endpoints, part := parting(t, 3)
	call := ending(func() error {
		_, _, err := endpoints[0].Recv(context.Background(), 1, 1, nil)
		return err
	})
	endpoints[2].Close()
	part()
	eventually(t, func() bool { return endpoints[1].boxes[0].connected() })
	endpoints[1].die()
	lost := (*Lost)(nil)
	if err := await(t, call); !errors.As(err, &lost) || lost.Rank != 1 {
		t.Error(err)
	}
}

// This rank may send to itself when all others have left, and gets what they have sent.
func TestKeptMessagesOfRanksThatHaveLeft(t *testing.T) {
	endpoints, part := parting(t, 2)
	mustSend(t, endpoints[1], 0, 1, []byte("sent"))
	endpoints[1].Close()
	part()
	mustSend(t, endpoints[0], 0, 1, []byte("to itself"))
	eventually(t, func() bool { return endpoints[0].boxes[1].keptMessages(1) == 1 })
	for range 2 {
		if _, _, _, err := endpoints[0].RecvAny(limited(t), nil, 1, make([]byte, 9)); err != nil {
			t.Error(err)
		}
	}
	_, _, _, err := endpoints[0].RecvAny(limited(t), nil, 1, nil)
	wantLeft(t, "receive", err, 1)
}
