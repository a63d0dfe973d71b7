package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// closePatience is how long a crew that is closed may take to end by itself. An
// agent that has commands to end takes longer, which nobody waits for.
const closePatience = 2 * time.Second

// lastWords is how long the end of an ssh's stderr is waited for once it has ended:
// what it has left in the background may hold it open.
const lastWords = 500 * time.Millisecond

// remoteCrew is the launcher's end of an agent on another host.
type remoteCrew struct {
	host  string
	ssh   *exec.Cmd
	died  chan struct{} // closed when ssh has ended
	says  *tailOf       // ssh's stderr
	said  chan struct{} // closed when that has come to its end
	in    *os.File      // ssh's stdin
	out   *os.File      // ssh's stdout
	ready readiness

	queue  chan struct{} // capacity 1: there is something to send
	lost   chan struct{}
	once   sync.Once
	err    error // why it was lost; set before lost is closed
	closed chan struct{}
	ending sync.Once

	mu      sync.Mutex
	notes   []note // to be sent
	workers map[int]*remoteWorker
	asked   int                // how many questions there were. mu
	answers map[int]chan *note // where the next answers go, each with room for one. mu
}

// dial connects to the agent of a host, which is reached by ssh, and gives it its
// assignment. It returns when the agent is ready or ctx is over. The error is a
// *hostError.
func dial(ctx context.Context, ssh *exec.Cmd, job assignment) (*remoteCrew, error) {
	c := &remoteCrew{
		host: job.Host, ssh: ssh, died: make(chan struct{}), says: &tailOf{}, said: make(chan struct{}),
		queue: make(chan struct{}, 1), lost: make(chan struct{}), closed: make(chan struct{}), workers: map[int]*remoteWorker{}, answers: map[int]chan *note{},
	}
	if err := c.start(); err != nil {
		return nil, &hostError{Host: job.Host, What: fmt.Sprintf("cannot start %s: %v", ssh.Args[0], err), Advice: "install an ssh client, or name one in GOROVOD_SSH"}
	}
	frames := &receiver{r: bufio.NewReaderSize(c.out, 64<<10)}
	arrived := make(chan error, 1)
	go func() { arrived <- c.arrive(frames, job) }()
	select {
	case err := <-arrived:
		if err != nil {
			c.kill()
			return nil, err
		}
	case <-ctx.Done():
		c.kill()
		what := "there was no answer in time"
		if text := c.says.text(); text != "" {
			what += ": " + text
		}
		return nil, &hostError{Host: c.host, What: what, Advice: "is the host up, and is its name right? --start-timeout gives it more time"}
	}
	go c.receive(frames)
	go c.send()
	return c, nil
}

// start starts ssh in a process group of its own, so that a Ctrl-C is the launcher's
// business alone, and without a terminal to ask questions at.
func (c *remoteCrew) start() error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	theirs = append(theirs, stdin)
	out, stdout, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	theirs = append(theirs, stdout)
	said, stderr, err := os.Pipe()
	if err != nil {
		in.Close()
		out.Close()
		return err
	}
	theirs = append(theirs, stderr)
	c.in, c.out = in, out
	// Files, not pipes of exec's: what ssh leaves in the background, for later
	// connections, may hold them open.
	c.ssh.Stdin, c.ssh.Stdout, c.ssh.Stderr = stdin, stdout, stderr
	c.ssh.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.ssh.Start(); err != nil {
		in.Close()
		out.Close()
		said.Close()
		return err
	}
	go func() {
		defer close(c.said)
		io.Copy(c.says, said)
		said.Close()
	}()
	go func() {
		c.ssh.Wait()
		close(c.died)
	}()
	return nil
}

// arrive goes through the greetings until the agent has taken the job.
func (c *remoteCrew) arrive(frames *receiver, job assignment) error {
	if err := greet(c.in, launcherGreeting, ""); err != nil {
		return c.unreachable("")
	}
	noise := 0
	for {
		line, err := readLine(frames.r, maxGreeting)
		if tried, ok := strings.CutPrefix(line, nobodyGreeting); ok {
			return &hostError{Host: c.host, What: "gorovod is not there: none of" + strings.TrimRight(tried, "\n") + " is a program",
				Advice: "install it there as here, or say with --remote-command how it is called there"}
		}
		if _, echo := parseGreeting(launcherGreeting, line); echo {
			return &hostError{Host: c.host, What: "what was run there is no gorovod: it repeats what it is told",
				Advice: "say with --remote-command what gorovod is called there"}
		}
		g, ok := parseGreeting(agentGreeting, line)
		if ok && !g.same() {
			return &hostError{Host: c.host, What: fmt.Sprintf("%s there is gorovod %s, and this is %s", g.path, g.version, build()),
				Advice: "install the same version on all hosts, or name the right one with --remote-command"}
		}
		if ok {
			break
		}
		if noise += len(line); noise > maxNoise || (err != nil && !errors.Is(err, errLineTooLong)) {
			return c.unreachable(strings.TrimSpace(line))
		}
	}
	if err := (&sender{w: c.in}).note(note{Type: jobNote, Job: &job}); err != nil {
		return c.unreachable("")
	}
	f, err := frames.next()
	switch {
	case err != nil:
		return c.unreachable("")
	case f.note == nil || f.note.Ready == nil && f.note.Type != refusedNote:
		return &hostError{Host: c.host, What: "what runs there is no agent of gorovod"}
	case f.note.Type == refusedNote:
		return &hostError{Host: c.host, What: f.note.Text}
	}
	c.ready = *f.note.Ready
	return nil
}

// unreachable is the error for a connection that has ended; printed is what came
// instead of an agent.
func (c *remoteCrew) unreachable(printed string) error {
	name := c.ssh.Args[0]
	code := -1
	select {
	case <-c.died:
		code = c.ssh.ProcessState.ExitCode()
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
	what := fmt.Sprintf("%s ended with code %d", name, code)
	if code < 0 {
		what = name + " was cut short"
	}
	if text != "" {
		what += ": " + text
	}
	advice := sshAdvice(c.host, code, text)
	if advice == "" && printed != "" {
		advice = "what was run there answers, but is no gorovod: say with --remote-command what it is called there"
	}
	return &hostError{Host: c.host, What: what, Advice: advice}
}

func (c *remoteCrew) Host() string          { return c.host }
func (c *remoteCrew) Lost() <-chan struct{} { return c.lost }

func (c *remoteCrew) Err() error {
	select {
	case <-c.lost:
		return c.err
	default:
		return nil
	}
}

func (c *remoteCrew) Start(id int, cmd command, w watcher) {
	k := newRemoteWorker(c, id, w)
	c.mu.Lock()
	_, twice := c.workers[id]
	gone := c.Err()
	if !twice && gone == nil {
		c.workers[id] = k
	}
	c.mu.Unlock()
	switch {
	case twice:
		k.conclude(outcome{Code: 1, Err: fmt.Errorf("%d runs already", id)})
	case gone != nil:
		k.conclude(outcome{Code: 1, Err: gone})
	default:
		c.tell(note{Type: startNote, ID: id, Command: &cmd})
	}
}

func (c *remoteCrew) Signal(id int, sig syscall.Signal) {
	c.tell(note{Type: signalNote, ID: id, Signal: int(sig)})
}

// tell queues a note. It never blocks: an agent that does not read is lost soon.
func (c *remoteCrew) tell(n note) {
	c.mu.Lock()
	c.notes = append(c.notes, n)
	c.mu.Unlock()
	select {
	case c.queue <- struct{}{}:
	default:
	}
}

// send is the goroutine that writes to the agent.
func (c *remoteCrew) send() {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	s := &sender{w: c.in}
	for {
		select {
		case <-c.queue:
		case <-ping.C:
			c.tell(note{Type: pingNote})
		case <-c.lost:
			return
		case <-c.closed:
			c.in.Close() // which the agent takes for the end
			return
		}
		c.mu.Lock()
		notes := c.notes
		c.notes = nil
		c.mu.Unlock()
		for _, n := range notes {
			if s.note(n) != nil {
				return // receive sees the end, too
			}
		}
	}
}

// receive is the goroutine that reads what the agent says. It never waits for a
// watcher.
func (c *remoteCrew) receive(frames *receiver) {
	for {
		select {
		case <-c.died: // what is in the pipe comes without waiting
		default:
			c.out.SetReadDeadline(time.Now().Add(agentSilence))
		}
		f, err := frames.next()
		if err == nil && f.note != nil && f.note.Type == refusedNote {
			err = errors.New(f.note.Text)
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

// pass hands a frame to its worker.
func (c *remoteCrew) pass(f frame) error {
	id := f.id
	if f.note != nil {
		if f.note.Type == pongNote {
			return nil
		}
		id = f.note.ID
		if f.note.Type == replyNote {
			c.mu.Lock()
			waits := c.answers[id]
			delete(c.answers, id)
			c.mu.Unlock()
			if waits != nil {
				waits <- f.note
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
	if f.note == nil {
		return k.streams[f.stream].put(f.data)
	}
	select {
	case k.events <- f.note:
		return nil
	default:
		return fmt.Errorf("it says too much of %d", id)
	}
}

// ask puts a question to the agent, and waits for the answer, in JSON.
func (c *remoteCrew) ask(ctx context.Context, q query) ([]byte, error) {
	waits := make(chan *note, 1)
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
	c.tell(note{Type: queryNote, ID: id, Query: &q})
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

// lose is the end of the connection: everything that ran there is lost.
func (c *remoteCrew) lose(err error) {
	c.once.Do(func() {
		select {
		case <-c.closed: // as it should be
			err = errors.New("the launcher has closed the connection")
		default:
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				err = fmt.Errorf("nothing was heard of it for %v", agentSilence)
			case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
				var h *hostError
				if errors.As(c.unreachable(""), &h) {
					err = errors.New(h.What)
				}
			}
		}
		c.err = &hostError{Host: c.host, What: err.Error()}
		c.mu.Lock()
		close(c.lost)
		left := c.workers
		c.workers = map[int]*remoteWorker{}
		c.mu.Unlock()
		c.kill()
		for _, k := range left {
			k.cut(c.err)
		}
	})
}

// kill ends ssh.
func (c *remoteCrew) kill() {
	c.in.Close()
	c.end()
	c.out.Close()
}

// end ends ssh, and what it has started to reach the host.
func (c *remoteCrew) end() {
	select {
	case <-c.died:
	default:
		syscall.Kill(-c.ssh.Process.Pid, syscall.SIGKILL)
		<-c.died
	}
}

func (c *remoteCrew) Close() {
	c.ending.Do(func() { close(c.closed) })
	select {
	case <-c.died:
	case <-time.After(closePatience):
		c.end()
	}
	// Something that ssh has left in the background may hold the pipe open.
	c.out.SetReadDeadline(time.Now())
	<-c.lost
}

// remoteWorker is one command of a remoteCrew.
type remoteWorker struct {
	crew    *remoteCrew
	id      int
	w       watcher
	events  chan *note // started, ended and gone: each once
	lost    chan error // capacity 1: nothing more will come
	streams [streamCount]*inflow
}

func newRemoteWorker(c *remoteCrew, id int, w watcher) *remoteWorker {
	k := &remoteWorker{crew: c, id: id, w: w, events: make(chan *note, 3), lost: make(chan error, 1)}
	for i := range k.streams {
		k.streams[i] = &inflow{more: make(chan struct{}, 1), over: make(chan struct{})}
	}
	go k.follow()
	for i, s := range k.streams {
		go func() {
			s.run(func(p []byte) { w.Output(i, p) }, func(n int) {
				c.tell(note{Type: creditNote, ID: id, Stream: i, Bytes: n})
			})
		}()
	}
	return k
}

// conclude ends a worker that has not begun.
func (k *remoteWorker) conclude(e outcome) {
	n := e.note(k.id)
	k.events <- &n
	k.events <- &note{Type: goneNote, ID: k.id}
}

// cut ends a worker whose crew is lost.
func (k *remoteWorker) cut(err error) { k.lost <- err }

// follow tells the watcher what becomes of the command.
func (k *remoteWorker) follow() {
	e := outcome{}
	ended, gone := false, false
	end := func(how outcome) {
		if ended = true; how.Err == nil && (how.Signal != 0 || how.Code != 0 || how.Lost != nil) {
			select {
			case <-k.streams[stderrStream].over:
			case <-time.After(tailPatience):
			}
		}
		k.w.Ended(how)
	}
	take := func(n *note) {
		switch n.Type {
		case startedNote:
			e.PID = n.PID
			k.w.Started(n.PID)
		case endedNote:
			if !ended {
				end(n.outcome())
			}
		case goneNote:
			gone = true
		}
	}
	for !gone {
		select {
		case n := <-k.events:
			take(n)
		case err := <-k.lost:
			// What has come before the loss counts.
			for len(k.events) > 0 {
				take(<-k.events)
			}
			if !ended {
				e.Lost = err
				end(e)
			}
			gone = true
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
	k.w.Gone()
}

// inflow is one stream between the connection and its watcher. The window bounds it.
type inflow struct {
	more chan struct{} // capacity 1: there is something to take
	over chan struct{} // closed when the watcher has all

	mu      sync.Mutex
	waiting []byte // mu
	ended   bool   // nothing follows. mu
}

// put adds bytes; none are the end, which may come twice. It never blocks.
func (s *inflow) put(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting)+len(p) > 2*streamWindow {
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

// run gives the bytes to output and grants as many again.
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
		if taken += len(p); taken >= grantAt {
			grant(taken)
			taken = 0
		}
	}
}
