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
	// Failure is the failure that counts: of the last epoch, if that has one. Earlier: workers failed in earlier
	// epochs, which the job survived.
	Failure *Failure `json:"failure,omitempty"`
	Earlier bool     `json:"earlier,omitempty"`
	// Ranks are the ranks of the last epoch's workers, by worker.
	Ranks map[int]int `json:"ranks,omitempty"`
}

// Failure says how a worker has failed.
type Failure struct {
	Worker int    `json:"worker"`
	Rank   int    `json:"rank"` // in the worker's last epoch; the worker's number if it had a place in none
	Host   string `json:"host"`
	PID    int    `json:"pid,omitempty"`
	Text   string `json:"text"` // one line: which worker, and how it ended
	// Reported is the rank's own report, and Stderr the last lines of its stderr.
	Reported string `json:"reported,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
}

// maxEvents is how many events may wait for the starter to read them.
const maxEvents = 1 << 16

var errNotRead = errors.New("the program that started this one does not read its output")

// events writes events in order, on a goroutine of its own, so that the driver never waits for the starter.
type events struct {
	queue   chan Event
	written chan struct{} // closed when the writer has ended
	failed  chan struct{} // closed when writing has failed

	once sync.Once
	end  sync.Once
	err  error // why writing failed; read it only after failed is closed
}

func newEvents(out io.Writer) *events {
	e := &events{queue: make(chan Event, maxEvents), written: make(chan struct{}), failed: make(chan struct{})}
	go e.write(out)
	return e
}

// send queues an event. Call it on one goroutine at a time, and not after close.
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

// write is the goroutine that writes. It flushes when no other event waits.
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

// flush closes the queue, and waits until everything is written or writing has failed.
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
