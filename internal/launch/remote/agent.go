package remote

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/reach"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/meeting"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// The launcher pings each agent, and the agent answers. An end that hears nothing for too long treats the connection as
// lost. The agent waits longer, because a user may stop the launcher for a moment.
const (
	pingInterval  = 5 * time.Second
	agentSilence  = 20 * time.Second // how long the launcher waits
	launchSilence = 2 * time.Minute  // how long the agent waits
	deafSilence   = time.Second      // how long the agent waits once it cannot write to the launcher
)

// Agent runs the launcher's commands on another host: a spawn.LocalCrew behind frames. When the connection is lost, the
// agent ends all commands and itself.
type Agent struct {
	wire.Sender
	crew atomic.Pointer[spawn.LocalCrew] // nil before the job
	key  []byte                          // the job's secret
	// launcher is the launcher's address as this host sees it; empty if it is not known.
	launcher string
	// own: the job's commands start in this program's working directory, because the launcher's is on another host.
	own bool
	// ends decides how the commands here end. Only the goroutine that serves the launcher uses it.
	ends *ending.State
	// signals and notices end the agent, or have its host leave the job. The agent catches signals itself if signals is
	// nil.
	signals <-chan os.Signal
	notices <-chan string
	// Over is the job's exit code; nil until the launcher has told it.
	Over *int
	// TurnedAway is the launcher's reason for refusing this agent.
	TurnedAway string
	// Gone: the agent ends because the launcher is gone or silent.
	Gone bool
	// say gets lines for the user, if own.
	say  func(text string)
	lost chan struct{} // closed when a write to the launcher has failed
	once sync.Once

	mu      sync.Mutex
	running map[int]*reporter
	left    sync.WaitGroup // commands that are not gone
}

// ServeAgent is the agent's main function: over an ssh's streams. It returns the exit code.
func ServeAgent(in io.Reader, out io.Writer) int {
	client, _, _ := strings.Cut(os.Getenv("SSH_CONNECTION"), " ")
	a := &Agent{lost: make(chan struct{}), running: map[int]*reporter{}, launcher: client,
		ends: ending.New(spawn.LedTerms)}
	return a.run(in, out)
}

// run obeys the launcher at the other end of in and out until it is gone. It returns the exit code.
func (a *Agent) run(in io.Reader, out io.Writer) int {
	// Not ignored: commands would inherit that.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	spawn.WakeWithParent() // should a stopped agent's sshd end
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	if wire.Greet(out, wire.AgentGreeting, self) != nil {
		return 1
	}
	r := bufio.NewReaderSize(in, 64<<10)
	line, err := wire.ReadLine(r, wire.MaxGreeting)
	g, ok := wire.ParseGreeting(wire.LauncherGreeting, line)
	switch {
	case !ok && err != nil && line == "" && a.own: // node 0 is gone, which is for the node's launcher to say
		a.Gone = true
		return ending.UsageCode
	case !ok && err != nil && line == "":
		fmt.Fprintln(os.Stderr, "gorovod agent: there is no launcher at its stdin")
		return ending.UsageCode
	case !ok:
		fmt.Fprintln(os.Stderr, "gorovod agent: it is horovodrun that starts agents")
		return ending.UsageCode
	case !g.Same():
		fmt.Fprintf(os.Stderr, "gorovod agent: this is gorovod %s, the launcher is %s\n", wire.Build(), g.Version)
		return 1
	}
	a.W = out
	notes := make(chan *wire.Note)
	go func() {
		defer close(notes)
		frames := &wire.Receiver{R: r}
		var input []byte
		for {
			f, err := frames.Next()
			switch {
			case err != nil:
				return
			case f.Input != nil:
				input = append(input, f.Input...)
				continue
			case f.Note == nil:
				return
			case f.Note.Job != nil:
				f.Note.Job.Input, input = input, nil
			}
			notes <- f.Note
		}
	}()
	if a.signals == nil {
		signals := make(chan os.Signal, 1)
		defer spawn.Notify([]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, signals)()
		a.signals = signals
	}
	if a.own {
		users := make(chan os.Signal, 16)
		stop := spawn.Notify(spawn.Forwarded, users)
		defer func() {
			stop()
			close(users)
		}()
		go func() {
			for s := range users {
				a.forward(s.(syscall.Signal))
			}
		}()
	}
	return a.serve(notes)
}

// serve obeys the launcher until it is gone, or until this host's part of the job ends. It returns when all commands
// have ended, or after a bounded time.
func (a *Agent) serve(notes <-chan *wire.Note) int {
	patience, lost := launchSilence, a.lost
	silence := time.NewTimer(patience)
	defer silence.Stop()
	defer a.end()
	for {
		select {
		case n, ok := <-notes:
			if !ok {
				a.Gone = true
				return 0
			}
			silence.Reset(patience)
			if err := a.obey(n); err != nil {
				a.tell(wire.Note{Type: wire.RefusedNote, Text: err.Error()})
				return 1
			}
		case s := <-a.signals:
			a.do(a.ends.Interrupt(time.Now(), s.(syscall.Signal)))
			if a.ends.Stage() > ending.Asked {
				return 1
			}
		case why := <-a.notices:
			a.do(a.ends.Leave(time.Now(), why))
		case <-silence.C:
			a.Gone = true
			return 1
		case <-lost: // the launcher's last notes may still be on their way
			patience, lost = deafSilence, nil
			silence.Reset(patience)
		}
	}
}

func (a *Agent) obey(n *wire.Note) error {
	switch {
	case n.Type == wire.RefusedNote:
		a.TurnedAway = n.Text
		return errors.New("turned away")
	case n.Type == wire.JobNote && n.Job != nil && a.crew.Load() == nil:
		return a.take(n.Job)
	case a.crew.Load() == nil:
		return fmt.Errorf("a %q comes before the job", n.Type)
	case n.Type == wire.StartNote && n.Command != nil:
		a.start(n.ID, *n.Command)
	case n.Type == wire.SignalNote:
		a.crew.Load().Signal(n.ID, syscall.Signal(n.Signal))
	case n.Type == wire.CreditNote:
		a.mu.Lock()
		r := a.running[n.ID]
		a.mu.Unlock()
		if r != nil {
			r.grant(n.Stream, n.Bytes)
		}
	case n.Type == wire.PingNote:
		a.tell(wire.Note{Type: wire.PongNote, At: time.Now().UnixNano()})
	case n.Type == wire.OutcomeNote:
		a.Over = &n.Code
	case n.Type == wire.QueryNote && n.Query != nil:
		go a.answer(n.ID, n.Query)
	default:
		return fmt.Errorf("a %q is not understood", n.Type)
	}
	return nil
}

// take prepares for the job, or says why it cannot.
func (a *Agent) take(job *wire.Assignment) error {
	if job.Dir != "" && !a.own {
		if err := os.Chdir(job.Dir); err != nil {
			return fmt.Errorf("the launcher's working directory is not there: %w", err)
		}
	}
	if err := spawn.CheckLimits(job.Slots); err != nil {
		return err
	}
	var interfaces []reach.Own
	if len(job.Interfaces) > 0 {
		var err error
		if interfaces, err = meeting.Usable(job.Interfaces); err != nil {
			return err
		}
	}
	crew, err := spawn.NewLocalCrew(job.Host, job.Secret, false)
	if err != nil {
		return err
	}
	if err := crew.Feed(job.Input); err != nil {
		crew.Close()
		return err
	}
	if a.key, err = hex.DecodeString(job.Secret); err != nil {
		crew.Close()
		return errors.New("the secret is not hexadecimal")
	}
	if job.Leaves {
		a.ends.MayLeave(syscall.SIGTERM)
	}
	a.ends.Started(commands)
	a.crew.Store(crew)
	a.tell(wire.Note{Type: wire.ReadyNote, Ready: &wire.Readiness{PID: os.Getpid(), Launcher: a.launcher,
		Interfaces: reach.Names(interfaces)}})
	return nil
}

// answer answers a question of gorovod doctor, or forwards a signal.
func (a *Agent) answer(id int, q *wire.Query) {
	reply := wire.Note{Type: wire.ReplyNote, ID: id}
	var given any
	var err error
	if q.What == wire.ForwardQuery {
		ctx, cancel := context.WithTimeout(context.Background(), spawn.ForwardTime)
		defer cancel()
		given = a.crew.Load().Forward(ctx, syscall.Signal(q.Signal))
	} else {
		given, err = Answer(context.Background(), q, a.key)
	}
	if err == nil {
		reply.Reply, err = json.Marshal(given)
	}
	if err != nil {
		reply.Text = err.Error()
	}
	a.tell(reply)
}

func (a *Agent) start(id int, c spawn.Command) {
	c.Env = environment.Overlay(os.Environ(), c.Env)
	r := &reporter{agent: a, id: id}
	r.room.L = &r.mu
	for i := range r.credit {
		r.credit[i] = wire.StreamWindow
	}
	a.mu.Lock()
	a.running[id] = r
	a.mu.Unlock()
	a.left.Add(1)
	a.crew.Load().Start(id, c, r)
}

// tell sends a note. An error means that the launcher is gone.
func (a *Agent) tell(n wire.Note) { a.check(a.Sender.Send(n)) }

func (a *Agent) check(err error) {
	if err != nil {
		a.drop()
	}
}

// drop discards the output that reporters have not sent.
func (a *Agent) drop() {
	a.once.Do(func() {
		close(a.lost)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, r := range a.running {
			r.mu.Lock()
			r.room.Broadcast()
			r.mu.Unlock()
		}
	})
}

// Took reports whether the agent has taken a job.
func (a *Agent) Took() bool { return a.crew.Load() != nil }

// reporter tells the launcher about one command.
type reporter struct {
	agent *Agent
	id    int

	mu     sync.Mutex
	room   sync.Cond          // credit has come, or the launcher is gone
	credit [spawn.Streams]int // bytes that may be sent. mu
}

func (r *reporter) Started(pid int) {
	r.agent.tell(wire.Note{Type: wire.StartedNote, ID: r.id, PID: pid, At: time.Now().UnixNano()})
}

func (r *reporter) Ended(e spawn.Outcome) { r.agent.tell(wire.NoteOf(r.id, e)) }

func (r *reporter) Gone() {
	r.agent.tell(wire.Note{Type: wire.GoneNote, ID: r.id})
	r.agent.left.Done()
}

func (r *reporter) Over() {
	r.agent.mu.Lock()
	delete(r.agent.running, r.id)
	r.agent.mu.Unlock()
	r.agent.tell(wire.Note{Type: wire.OverNote, ID: r.id})
}

func (r *reporter) Output(stream int, p []byte) {
	if len(p) == 0 {
		r.agent.check(r.agent.SendOutput(r.id, stream, nil))
		return
	}
	for len(p) > 0 {
		n := r.take(stream, len(p))
		if n == 0 {
			return // the launcher is gone
		}
		r.agent.check(r.agent.SendOutput(r.id, stream, p[:n]))
		p = p[n:]
	}
}

// take waits for credit and takes up to most bytes of it; 0 if the launcher is gone.
func (r *reporter) take(stream, most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		select {
		case <-r.agent.lost:
			return 0
		default:
		}
		if n := min(most, r.credit[stream]); n > 0 {
			r.credit[stream] -= n
			return n
		}
		r.room.Wait()
	}
}

func (r *reporter) grant(stream, bytes int) {
	if stream < 0 || stream >= spawn.Streams || bytes < 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credit[stream] = min(r.credit[stream]+bytes, wire.StreamWindow)
	r.room.Broadcast()
}

// forward forwards a signal that the launcher of this node got to the node's ranks, and tells the user.
func (a *Agent) forward(sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), spawn.ForwardTime)
	defer cancel()
	d := spawn.Delivery{}
	if crew := a.crew.Load(); crew != nil {
		d = crew.Forward(ctx, sig)
	}
	a.say(d.Text(sig, " of this node"))
}
