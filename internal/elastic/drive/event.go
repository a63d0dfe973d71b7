package drive

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// Types of events.
const (
	Start   = "start"   // Worker, Host, Slot, Environment: start a process
	Signal  = "signal"  // Worker, Signal: 15 (end it) or 9 (kill it)
	Say     = "say"     // Text, for the user
	Debug   = "debug"   // Text, for a user who wants to know more
	Outcome = "outcome" // Text: why the job was stopped, empty if it has finished; Failure, Earlier, Ranks. The last
)

// Event is a line of output.
type Event struct {
	Type        string            `json:"type"`
	Worker      *int              `json:"worker,omitempty"`
	Host        string            `json:"host,omitempty"`
	Slot        *int              `json:"slot,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Signal      int               `json:"signal,omitempty"`
	Text        string            `json:"text,omitempty"`
	// Failure is the end that counts, of the last epoch where there is one; Earlier says that others failed in
	// earlier epochs, which the job survived.
	Failure *Failure `json:"failure,omitempty"`
	Earlier bool     `json:"earlier,omitempty"`
	// Ranks are those of the last epoch's workers, by worker.
	Ranks map[int]int `json:"ranks,omitempty"`
}

// Failure is how a worker has failed.
type Failure struct {
	Worker int    `json:"worker"`
	Rank   int    `json:"rank"` // in its last epoch; its number if it had a place in none
	Host   string `json:"host"`
	PID    int    `json:"pid,omitempty"`
	Text   string `json:"text"` // one line: who, and how it ended
	// Reported is what the rank itself has said, and Stderr the end of what it has written there.
	Reported string `json:"reported,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
}

// maxEvents is how many may wait for the starter to read them.
const maxEvents = 1 << 16

var errNotRead = errors.New("the program that started this one does not read its output")

// events writes events in order, so that the driver never waits for the starter.
type events struct {
	queue   chan Event
	written chan struct{} // closed when the writer has ended
	failed  chan struct{} // closed when writing has failed

	once sync.Once
	end  sync.Once
	err  error // why; to be read after failed is closed
}

func newEvents(out io.Writer) *events {
	e := &events{queue: make(chan Event, maxEvents), written: make(chan struct{}), failed: make(chan struct{})}
	go e.write(out)
	return e
}

// send may be called on one goroutine at a time, and not after close.
func (e *events) send(event Event) {
	select {
	case e.queue <- event:
	default:
		e.fail(errNotRead)
	}
}

func (e *events) fail(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.failed)
	})
}

// write is the goroutine that writes, and flushes when no other event waits.
func (e *events) write(out io.Writer) {
	defer close(e.written)
	w := bufio.NewWriter(out)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for event := range e.queue {
		err := encoder.Encode(event)
		if err == nil && len(e.queue) == 0 {
			err = w.Flush()
		}
		if err != nil {
			e.fail(err)
			return
		}
	}
}

func (e *events) close() { e.end.Do(func() { close(e.queue) }) }

// flush waits until everything is written, or cannot be.
func (e *events) flush() error {
	e.close()
	select {
	case <-e.written:
	case <-e.failed:
	}
	select {
	case <-e.failed:
		return e.err
	default:
		return nil
	}
}
