package world

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// All ranks have one text for a failure, whichever rank has seen it: what failed, when, which rank noticed it, and what
// that rank was doing. Rank 3 waits for nothing meanwhile.
func TestAFailureReadsTheSameEverywhere(t *testing.T) {
	const size = 4
	who := fmt.Sprintf(`rank 2 on host \w+ \(pid %d\) `, os.Getpid())
	for _, f := range []struct {
		name   string
		happen func(l *launcher, w *World) // on rank 2
		cause  string
	}{
		{"exception", func(_ *launcher, w *World) { w.Fail("raised ValueError: bad batch") },
			`Horovod has been shut down: ` + who + `raised ValueError: bad batch`},
		{"abort", func(_ *launcher, w *World) { w.Abort(errors.New(w.Describe(2) + " is out of paper")) },
			who + `is out of paper`},
		{"death", func(l *launcher, w *World) {
			l.Died(rendezvous.Death{Rank: 2, Host: w.Place.Host, PID: os.Getpid(), Signal: 9})
		}, who + `was killed by signal 9 \(SIGKILL\)`},
	} {
		for _, transport := range []string{"shm", "tcp", "on aabb"} {
			t.Run(f.name+" over "+transport, func(t *testing.T) {
				l := newLauncher(t, size)
				var texts [size]string
				var ready, over sync.WaitGroup
				ready.Add(size)
				over.Add(size)
				each(size, func(r int) {
					c := l.config(r, size, transport)
					c.FlightRecords = 10
					w, err := join(context.Background(), c, 1, quiet())
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						ready.Done()
						over.Done()
						return
					}
					defer w.Leave(limit)
					var failed *engine.Error
					if _, err := add(w, "first", 1); err != nil {
						t.Error(err)
					}
					ready.Done()
					if r < 2 {
						_, failed = add(w, "pending", 1)
					} else {
						ready.Wait()                      // "first" is done everywhere
						time.Sleep(10 * time.Millisecond) // by now the others mostly wait, but that does not matter
						if r == 2 {
							f.happen(l, w)
						}
						for deadline := time.Now().Add(limit); w.Failure() == "" && time.Now().Before(deadline); {
							time.Sleep(time.Millisecond)
						}
						_, failed = add(w, "later", 1)
					}
					if failed != nil {
						texts[r] = failed.Reason
					}
					over.Done()
					over.Wait()
				})
				want := regexp.MustCompile(`^` + f.cause +
					` \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC, seen by rank \d on host \w+ \(pid \d+\): ` +
					`(ALLREDUCE "pending" waited for other ranks|nothing was pending after ALLREDUCE "first")\]$`)
				for r, text := range texts {
					if !want.MatchString(text) || text != texts[0] {
						t.Errorf("rank %d: %s", r, text)
					}
				}
				if v := l.Verdict(); v == nil || v.Cause+v.View != texts[0] {
					t.Errorf("the launcher has %v", v)
				}
			})
		}
	}
}

// A failure that one rank tells the launcher reaches ranks that its own abort cannot reach.
func TestTheLauncherPassesFailuresOn(t *testing.T) {
	l := newLauncher(t, 2)
	var worked sync.WaitGroup
	worked.Add(2)
	each(2, func(r int) {
		w, err := join(context.Background(), l.config(r, 2, "tcp"), 1, quiet())
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			worked.Done()
			return
		}
		defer w.Leave(limit)
		if _, err := add(w, "x", 1); err != nil {
			t.Error(err)
		}
		worked.Done()
		worked.Wait()
		if r == 1 { // tells only the launcher
			w.session.Agree(rendezvous.Verdict{Cause: "the sky has fallen", View: " [just now]"}, limit)
		}
		if _, err := add(w, fmt.Sprint("of ", r), 1); err == nil || err.Reason != "the sky has fallen [just now]" {
			t.Errorf("rank %d: %v", r, err)
		}
	})
}

// The end of a rank with code 0 is a failure for the launcher if operations of other ranks fail because of it. If no
// rank has anything to do any more, it is no failure.
func TestAnEndWithCode0(t *testing.T) {
	asProcesses(t)
	const size, ends = 3, 1
	for _, pending := range []bool{true, false} {
		for _, transport := range []string{"shm", "tcp", "on aab"} {
			t.Run(fmt.Sprintf("pending %v over %s", pending, transport), func(t *testing.T) {
				l := newLauncher(t, size)
				var ready sync.WaitGroup
				ready.Add(size)
				each(size, func(r int) {
					w, err := join(context.Background(), l.config(r, size, transport), 1, quiet())
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						ready.Done()
						return
					}
					defer w.Leave(limit)
					if _, err := add(w, "first", 1); err != nil {
						t.Error(err)
					}
					ready.Done()
					ready.Wait()
					switch {
					case r == ends:
						l.Died(rendezvous.Death{Rank: ends, Host: w.Place.Host, PID: os.Getpid()})
					case pending:
						if _, err := add(w, "second", 1); err == nil {
							t.Errorf("rank %d: it works without rank %d", r, ends)
						}
					}
					for deadline := time.Now().Add(limit); w.Failure() == "" && time.Now().Before(deadline); {
						time.Sleep(time.Millisecond)
					}
				})
				l.Drain(limit, 0, 1, 2)
				first := l.First()
				if !pending {
					if first != nil {
						t.Errorf("it is taken for a failure: %+v", first)
					}
				} else if first == nil || first.About != ends || !strings.HasSuffix(first.Text, " exited with code 0 "+
					"while other ranks had operations to do") {
					t.Errorf("the first failure is %+v", first)
				}
			})
		}
	}
}

// A rank that ends without a goodbye right after an operation takes nothing from the others that it has done: their
// operation ends well, even if they have not looked when they hear of the end. What comes later fails. Under TLS nobody
// can tell what a socket holds, and it depends on the time.
func TestWhatTheGoneRankHasDoneCounts(t *testing.T) {
	asProcesses(t)
	const size = 2
	for _, transport := range []string{"shm", "tcp", "on ab"} {
		t.Run(transport, func(t *testing.T) {
			l := newLauncher(t, size)
			var over sync.WaitGroup
			over.Add(size)
			each(size, func(r int) {
				w, err := join(context.Background(), l.config(r, size, transport), 1, quiet())
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
					over.Done()
					return
				}
				defer w.Leave(limit)
				for range 5 { // now the drivers have the connections
					if _, err := add(w, "before", 1); err != nil {
						t.Error(err)
					}
				}
				if r == 0 {
					sendAndEnd(t, l, w)
				} else {
					receiveLate(t, w)
				}
				over.Done()
				over.Wait()
			})
		})
	}
}

// sendAndEnd has rank 0 send twice, for which it waits for nobody, and end.
func sendAndEnd(t *testing.T, l *launcher, w *World) {
	for _, op := range []*engine.Op{rank0Sends("first", 6), rank0Sends("second", 7)} {
		en, err := w.Engine.Enqueue(op)
		if err != nil {
			t.Error(err)
			continue
		}
		if !en.Wait(limit) || en.Err() != nil {
			t.Errorf("rank 0 cannot send: %v", en.Err())
		}
		en.Release()
	}
	w.monitor.Leave() // it hears no more
	l.Died(rendezvous.Death{Rank: 0, Host: w.Place.Host, PID: os.Getpid()})
}

// receiveLate keeps rank 1's driver at the end of the first operation until the news of rank 0's end is there.
func receiveLate(t *testing.T, w *World) {
	heard := make(chan struct{})
	first, second := rank0Sends("first", 0), rank0Sends("second", 0)
	first.Ended = func(*engine.Entry) { <-heard }
	var en *engine.Entry
	for _, op := range []*engine.Op{first, second} {
		var err *engine.Error
		if en, err = w.Engine.Enqueue(op); err != nil {
			t.Error(err)
			close(heard)
			return
		}
		defer en.Release()
	}
	if news, dead := w.monitor.NextDeath(); !dead {
		select {
		case <-news:
		case <-time.After(limit):
			t.Error("no news of the end")
		}
	}
	for began := time.Now(); w.net.Err() == nil && time.Since(began) < 10*time.Millisecond; {
		time.Sleep(time.Millisecond) // an abort would come at once
	}
	close(heard)
	for began := time.Now(); w.Failure() == "" && time.Since(began) < limit; {
		time.Sleep(time.Millisecond)
	}
	if !en.Wait(limit) || en.Err() != nil || !bytes.Equal(second.Out, rank0Sends("", 7).Out) {
		t.Errorf("the second operation: %v, %x", en.Err(), second.Out)
	}
	if _, err := add(w, "later", 1); err == nil || !strings.Contains(err.Reason, "exited with code 0") {
		t.Errorf("a later operation: %v", err)
	}
}

// rank0Sends is a broadcast of one float.
func rank0Sends(name string, v float32) *engine.Op {
	data := binary.NativeEndian.AppendUint32(nil, math.Float32bits(v))
	return &engine.Op{Type: operation.Broadcast, DType: tensor.Float32, Name: name, Shape: tensor.Shape{1}, In: data,
		Out: data}
}
