// Package remote runs commands on other hosts, as package spawn does on this one.
//
//	launcher: Crew ── Line (ssh, kubectl exec, or a node's connection) ── Agent: spawn.LocalCrew ─▶ commands
//
// Crews connects to all hosts of a job at the same time, and starts an Agent on each with the Shell's program. Where
// each node has a launcher of its own, the nodes come by themselves, and ServeNode makes a node's launcher the Agent.
// Either end may vanish at any time: the Crew then tells each Watcher that its command is lost, and the Agent ends all
// commands. Errors about a host are HostErrors, with advice where ssh's message is known. This package must not know
// jobs, nor why commands are started.
package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// closePatience is how long a closed crew may take to end by itself. An agent with commands to end takes longer;
// nobody waits for it.
const closePatience = 2 * time.Second

// answerTime is how long an agent may be silent after the launcher told it to kill a command.
const answerTime = 3 * time.Second

// lastWords is how long the launcher waits for the end of an ssh's stderr after the ssh has ended: a process that ssh
// left in the background may hold stderr open.
const lastWords = 500 * time.Millisecond

// Crew is the launcher's end of an agent on another host.
type Crew struct {
	*Line
	host  string
	Ready wire.Readiness
	noise tailOf           // bytes before the agent's greeting, as a login shell may print
	clock rendezvous.Clock // the host's. Owned by receive's goroutine

	frames atomic.Int64  // how many have come
	queue  chan struct{} // capacity 1: there is something to send
	lost   chan struct{}
	once   sync.Once
	err    error // why it was lost; set before lost is closed
	closed chan struct{}
	ending sync.Once
	Leaves chan string // capacity 1: why the host is to leave the job

	mu      sync.Mutex
	notes   []wire.Note // to be sent
	workers map[int]*worker
	asked   int                     // how many questions were asked. mu
	answers map[int]chan *wire.Note // where each answer goes; capacity 1. mu
}

// dial gives the agent at the other end of a host's line its assignment. It owns the line from then on, and returns
// when the agent is ready or ctx ends. The error is a *HostError.
func dial(ctx context.Context, l *Line, job wire.Assignment) (*Crew, error) {
	c := &Crew{
		Line: l, host: job.Host,
		queue: make(chan struct{}, 1), lost: make(chan struct{}), closed: make(chan struct{}),
		Leaves:  make(chan string, 1),
		workers: map[int]*worker{}, answers: map[int]chan *wire.Note{},
	}
	frames := &wire.Receiver{R: bufio.NewReaderSize(c.out, 64<<10)}
	arrived := make(chan error, 1)
	go func() { arrived <- c.arrive(frames, job) }()
	select {
	case err := <-arrived:
		if err != nil {
			c.cut()
			return nil, err
		}
	case <-ctx.Done():
		c.cut()
		return nil, c.late()
	}
	go c.receive(frames)
	go c.send()
	return c, nil
}

// late is the error for a host that has not greeted, or not taken the job, in time.
func (c *Crew) late() error {
	e := &HostError{Host: c.host, What: "there was no answer in time",
		Advice: "is the host up, and is its name right? --start-timeout gives it more time"}
	text := c.says.text()
	if noise := c.noise.text(); noise != "" {
		// Somebody is there, or a login shell speaks and gorovod is slow.
		last := noise[strings.LastIndexByte(noise, '\n')+1:]
		e.What = "there was no answer of gorovod's in time, but this: " + last
		e.Advice = "is what was run there gorovod? --remote-command says what it is called there, and " +
			"--start-timeout gives it more time"
	}
	if text != "" {
		e.What += ": " + text
	}
	return e
}

// arrive exchanges greetings, and waits until the agent has taken the job.
func (c *Crew) arrive(frames *wire.Receiver, job wire.Assignment) error {
	if err := wire.Greet(c.in, wire.LauncherGreeting, ""); err != nil {
		return c.unreachable("")
	}
	noise := 0
	for {
		line, err := wire.ReadLine(frames.R, wire.MaxGreeting)
		if tried, ok := strings.CutPrefix(line, wire.NobodyGreeting); ok {
			return &HostError{Host: c.host, What: "gorovod is not there: none of" + strings.TrimRight(tried, "\n") +
				" is a program", Advice: "install it there as here, or say with --remote-command how it is " +
				"called there"}
		}
		if _, echo := wire.ParseGreeting(wire.LauncherGreeting, line); echo {
			return &HostError{Host: c.host, What: "what was run there is no gorovod: it repeats what it is told",
				Advice: "say with --remote-command what gorovod is called there"}
		}
		g, ok := wire.ParseGreeting(wire.AgentGreeting, line)
		if ok && !g.Same() {
			return &HostError{Host: c.host, What: fmt.Sprintf("%s there is gorovod %s, and this is %s", g.Path,
				g.Version, wire.Build()), Advice: "install the same version on all hosts, or name the right one with " +
				"--remote-command"}
		}
		if ok {
			c.noise.forget()
			break
		}
		io.WriteString(&c.noise, line)
		if noise += len(line); noise > wire.MaxNoise || (err != nil && !errors.Is(err, wire.ErrLineTooLong)) {
			return c.unreachable(strings.TrimSpace(line))
		}
	}
	if err := (&wire.Sender{W: c.in}).SendJob(job); err != nil {
		return c.unreachable("")
	}
	for {
		f, err := frames.Next()
		switch {
		case err != nil:
			return c.unreachable("")
		case f.Note != nil && f.Note.Type == wire.GoingNote: // the host is to leave before it has taken the job
			c.leave(f.Note.Text)
		case f.Note != nil && f.Note.Type == wire.RefusedNote:
			return &HostError{Host: c.host, What: f.Note.Text}
		case f.Note == nil || f.Note.Ready == nil:
			return &HostError{Host: c.host, What: "what runs there is no agent of gorovod"}
		default:
			c.Ready = *f.Note.Ready
			return nil
		}
	}
}

// leave notes that the host is to leave the job. Only the first reason counts.
func (c *Crew) leave(why string) {
	select {
	case c.Leaves <- strings.ToValidUTF8(why, "?"):
	default:
	}
}

// unreachable is the error for a connection that has ended. printed is the text that came instead of an agent's
// greeting.
func (c *Crew) unreachable(printed string) error {
	code, fate := -1, "was cut short"
	select {
	case <-c.died:
		code, fate = c.code, c.fate
		select {
		case <-c.said:
		case <-time.After(lastWords):
		}
	case <-time.After(time.Second):
	}
	text := c.says.text()
	if text == "" {
		text = printed
	}
	what := c.name + " " + fate
	if text != "" {
		what += ": " + text
	}
	advice := ""
	if c.args != nil { // a program (ssh) runs the line
		advice = sshAdvice(c.args, c.host, code, text)
	}
	if advice == "" && printed != "" {
		advice = "what was run there answers, but is no gorovod: say with --remote-command what it is called there"
	}
	return &HostError{Host: c.host, What: what, Advice: advice, TurnedAway: turnedAway(code, text)}
}

func (c *Crew) Host() string          { return c.host }
func (c *Crew) Lost() <-chan struct{} { return c.lost }

func (c *Crew) Err() error {
	select {
	case <-c.lost:
		return c.err
	default:
		return nil
	}
}

func (c *Crew) Start(id int, cmd spawn.Command, w spawn.Watcher) {
	k := newWorker(c, id, w)
	c.mu.Lock()
	_, twice := c.workers[id]
	gone := c.Err()
	if !twice && gone == nil {
		c.workers[id] = k
	}
	c.mu.Unlock()
	switch {
	case twice:
		k.conclude(spawn.Outcome{Code: 1, Err: fmt.Errorf("%d runs already", id)})
	case gone != nil:
		k.conclude(spawn.Outcome{Code: 1, Err: gone})
	default:
		c.tell(wire.Note{Type: wire.StartNote, ID: id, Command: &cmd})
	}
}

func (c *Crew) Signal(id int, sig syscall.Signal) {
	c.tell(wire.Note{Type: wire.SignalNote, ID: id, Signal: int(sig)})
	if sig != syscall.SIGKILL {
		return
	}
	// A stopped agent, for example, does not answer. It ends everything once its connection has ended.
	c.tell(wire.Note{Type: wire.PingNote})
	before := c.frames.Load()
	time.AfterFunc(answerTime, func() {
		if c.frames.Load() == before {
			c.lose(fmt.Errorf("it has not answered for %v", answerTime))
		}
	})
}

// tell queues a note. It never blocks: an agent that does not read is soon lost.
func (c *Crew) tell(n wire.Note) {
	c.mu.Lock()
	c.notes = append(c.notes, n)
	c.mu.Unlock()
	select {
	case c.queue <- struct{}{}:
	default:
	}
}

// Refuse tells the agent why the job goes on without it.
func (c *Crew) Refuse(why string) { c.tell(wire.Note{Type: wire.RefusedNote, Text: why}) }

// send is the goroutine that writes to the agent.
func (c *Crew) send() {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	s := &wire.Sender{W: c.in}
	for {
		select {
		case <-c.queue:
		case <-ping.C:
			c.tell(wire.Note{Type: wire.PingNote})
		case <-c.lost:
			return
		case <-c.closed:
			c.pour(s)
			c.in.Close() // the agent ends at the end of its input
			return
		}
		if c.pour(s) != nil {
			return // receive sees the end, too
		}
	}
}

// pour sends the notes that are queued.
func (c *Crew) pour(s *wire.Sender) error {
	c.mu.Lock()
	notes := c.notes
	c.notes = nil
	c.mu.Unlock()
	for _, n := range notes {
		if err := s.Send(n); err != nil {
			return err
		}
	}
	return nil
}

// receive is the goroutine that reads the agent's frames. It never waits for a watcher.
func (c *Crew) receive(frames *wire.Receiver) {
	for {
		select {
		case <-c.died: // read what is in the pipe, and do not wait for more
		default:
			c.out.SetReadDeadline(time.Now().Add(agentSilence))
		}
		f, err := frames.Next()
		c.frames.Add(1)
		if err == nil && f.Note != nil && f.Note.Type == wire.RefusedNote {
			err = errors.New(f.Note.Text)
		}
		if err == nil {
			err = c.pass(f)
		}
		if err != nil {
			c.lose(err)
			return
		}
	}
}

// pass passes a frame to its worker.
func (c *Crew) pass(f wire.Frame) error {
	if f.Input != nil {
		return errors.New("it speaks as a launcher does")
	}
	id := f.ID
	if f.Note != nil {
		if f.Note.Type == wire.PongNote {
			c.clock.Hear(f.Note.At, time.Time{}, time.Now())
			return nil
		}
		switch f.Note.Type {
		case wire.GoingNote:
			c.leave(f.Note.Text)
			return nil
		case wire.StartedNote:
			c.mu.Lock()
			if k := c.workers[id]; k != nil {
				c.clock.Hear(f.Note.At, k.began, time.Now())
			}
			c.mu.Unlock()
		case wire.EndedNote:
			f.Note.SetTime(c.clock.Here(f.Note.At, time.Now()))
		}
		id = f.Note.ID
		if f.Note.Type == wire.ReplyNote {
			c.mu.Lock()
			waits := c.answers[id]
			delete(c.answers, id)
			c.mu.Unlock()
			if waits != nil {
				waits <- f.Note
			}
			return nil
		}
	}
	c.mu.Lock()
	k := c.workers[id]
	c.mu.Unlock()
	if k == nil {
		return fmt.Errorf("it speaks of %d, which nobody has started", id)
	}
	if f.Note == nil {
		return k.streams[f.Stream].put(f.Data)
	}
	select {
	case k.events <- f.Note:
		return nil
	default:
		return fmt.Errorf("it says too much of %d", id)
	}
}

// Ask sends a question to the agent, and waits for the answer, in JSON.
func (c *Crew) Ask(ctx context.Context, q wire.Query) ([]byte, error) {
	waits := make(chan *wire.Note, 1)
	c.mu.Lock()
	c.asked++
	id := c.asked
	c.answers[id] = waits
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.answers, id)
	}()
	c.tell(wire.Note{Type: wire.QueryNote, ID: id, Query: &q})
	select {
	case n := <-waits:
		if n.Text != "" {
			return nil, errors.New(n.Text)
		}
		return n.Reply, nil
	case <-c.lost:
		return nil, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lose ends the connection, and tells every worker that its command is lost.
func (c *Crew) lose(err error) {
	c.once.Do(func() {
		select {
		case <-c.closed: // Close was called: this is no fault
			err = errors.New("the launcher has closed the connection")
		default:
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				err = fmt.Errorf("nothing was heard of it for %v", agentSilence)
			case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
				var h *HostError
				if errors.As(c.unreachable(""), &h) {
					err = errors.New(h.What)
				}
			}
		}
		c.err = &HostError{Host: c.host, What: err.Error()}
		c.mu.Lock()
		close(c.lost)
		left := c.workers
		c.workers = map[int]*worker{}
		c.mu.Unlock()
		c.cut()
		for _, k := range left {
			k.cut(c.err)
		}
	})
}

// cut ends the connection, and ssh.
func (c *Crew) cut() {
	c.in.Close()
	c.End()
	c.out.Close()
}

func (c *Crew) Close() {
	c.ending.Do(func() { close(c.closed) })
	select {
	case <-c.died:
	case <-time.After(closePatience):
		c.End()
	}
	// A process that ssh has left in the background may hold the pipe open.
	c.out.SetReadDeadline(time.Now())
	<-c.lost
}

// worker is one command of a Crew.
type worker struct {
	crew    *Crew
	id      int
	began   time.Time
	w       spawn.Watcher
	events  chan *wire.Note // started, ended, gone and over: each once
	lost    chan error      // capacity 1: nothing more will come
	streams [spawn.Streams]*inflow
}

func newWorker(c *Crew, id int, w spawn.Watcher) *worker {
	k := &worker{crew: c, id: id, began: time.Now(), w: w, events: make(chan *wire.Note, 4),
		lost: make(chan error, 1)}
	for i := range k.streams {
		k.streams[i] = &inflow{more: make(chan struct{}, 1), over: make(chan struct{})}
	}
	go k.follow()
	for i, s := range k.streams {
		go func() {
			s.run(func(p []byte) { w.Output(i, p) }, func(n int) {
				c.tell(wire.Note{Type: wire.CreditNote, ID: id, Stream: i, Bytes: n})
			})
		}()
	}
	return k
}

// conclude ends a worker that has not started.
func (k *worker) conclude(e spawn.Outcome) {
	n := wire.NoteOf(k.id, e)
	k.events <- &n
	k.events <- &wire.Note{Type: wire.GoneNote, ID: k.id}
	k.events <- &wire.Note{Type: wire.OverNote, ID: k.id}
}

// cut tells a worker that its crew is lost.
func (k *worker) cut(err error) { k.lost <- err }

// follow reports the command's events to the watcher.
func (k *worker) follow() {
	e := spawn.Outcome{}
	ended, gone, over := false, false, false
	leave := func() {
		if !gone {
			gone = true
			k.w.Gone()
		}
	}
	end := func(how spawn.Outcome) {
		if ended = true; how.Err == nil && (how.Signal != 0 || how.Code != 0 || how.Lost != nil) {
			select {
			case <-k.streams[spawn.Stderr].over:
			case <-time.After(spawn.TailPatience):
			}
		}
		k.w.Ended(how)
	}
	take := func(n *wire.Note) {
		switch n.Type {
		case wire.StartedNote:
			e.PID = n.PID
			k.w.Started(n.PID)
		case wire.EndedNote:
			if !ended {
				end(n.Outcome())
			}
		case wire.GoneNote:
			leave()
		case wire.OverNote:
			over = true
		}
	}
	for !over {
		select {
		case n := <-k.events:
			take(n)
		case err := <-k.lost:
			// Events that came before the loss count.
			for len(k.events) > 0 {
				take(<-k.events)
			}
			if !ended {
				e.Lost = err
				end(e)
			}
			leave()
			over = true
		}
	}
	for _, s := range k.streams {
		s.put(nil)
		<-s.over
	}
	k.crew.mu.Lock()
	if k.crew.workers[k.id] == k {
		delete(k.crew.workers, k.id)
	}
	k.crew.mu.Unlock()
	k.w.Over()
}

// inflow is one stream between the connection and its watcher. The window bounds its size.
type inflow struct {
	more chan struct{} // capacity 1: there is something to take
	over chan struct{} // closed when the watcher has all

	mu      sync.Mutex
	waiting []byte // mu
	ended   bool   // nothing follows. mu
}

// put adds bytes; an empty p is the end, which may come twice. It never blocks.
func (s *inflow) put(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting)+len(p) > 2*wire.StreamWindow {
		return errors.New("it sends more output than it may")
	}
	s.waiting = append(s.waiting, p...)
	s.ended = s.ended || len(p) == 0
	select {
	case s.more <- struct{}{}:
	default:
	}
	return nil
}

// run passes the bytes to output, and grants the agent the same number again.
func (s *inflow) run(output func(p []byte), grant func(n int)) {
	defer close(s.over)
	var spare []byte
	taken := 0
	for range s.more {
		s.mu.Lock()
		p, ended := s.waiting, s.ended
		s.waiting = spare[:0]
		s.mu.Unlock()
		spare = p
		if len(p) > 0 {
			output(p)
		}
		if ended {
			output(nil)
			return
		}
		if taken += len(p); taken >= wire.GrantAt {
			grant(taken)
			taken = 0
		}
	}
}

// Forward asks the agent.
func (c *Crew) Forward(ctx context.Context, sig syscall.Signal) (d spawn.Delivery) {
	text, err := c.Ask(ctx, wire.Query{What: wire.ForwardQuery, Signal: int(sig)})
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return spawn.Delivery{Asked: len(c.workers), Silent: len(c.workers)}
	}
	return d
}
