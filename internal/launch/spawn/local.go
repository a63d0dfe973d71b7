package spawn

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/gorovod/gorovod/internal/launch/ending"
)

// LedTerms are the rules by which the commands of this host end if a launcher on another host leads the job: how long
// to wait for their supervisors.
var LedTerms = ending.Terms{Led: true, Terminated: LeftoverGrace + KillGrace, Killed: LeftoverGrace + KillGrace}

// startsAtATime is how many supervisors start together. More would only compete for the processors.
const startsAtATime = 8

// LocalCrew runs commands on this host. A process has at most one, because the process is the reaper of everything that
// the crew's supervisors may leave behind.
type LocalCrew struct {
	host    string
	orphans *orphanage
	room    chan struct{} // holds one for each start that is under way
	never   chan struct{} // Lost returns it, and nobody closes it: this host is not lost
	input   *os.File      // what each command reads at its stdin; nil for nothing

	// starting is held for reading while a supervisor starts, or while a vigil takes a command over from a dead
	// supervisor. It is held for writing while the crew tells orphans from living supervisors, and reaps them.
	starting sync.RWMutex

	mu        sync.Mutex
	closed    bool
	processes map[int]*process // that are not gone, by id

	forwarding sync.Mutex              // held while a signal is forwarded
	last       map[syscall.Signal]echo // forwarding
}

// NewLocalCrew makes the crew of this host. All its commands have secret as SecretVariable. others: this process has
// other children, too.
func NewLocalCrew(host, secret string, others bool) (*LocalCrew, error) {
	orphans, err := adopt(secret, others)
	if err != nil {
		return nil, err
	}
	return &LocalCrew{host: host, orphans: orphans, room: make(chan struct{}, startsAtATime),
		never: make(chan struct{}), processes: map[int]*process{}, last: map[syscall.Signal]echo{}}, nil
}

func (c *LocalCrew) Host() string          { return c.host }
func (c *LocalCrew) Lost() <-chan struct{} { return c.never }
func (c *LocalCrew) Err() error            { return nil }

// Feed gives each command that starts from now on a stdin with these bytes; nil is an empty stdin.
func (c *LocalCrew) Feed(input []byte) (err error) {
	if input != nil {
		c.input, err = inMemory("input", input)
	}
	return err
}

func (c *LocalCrew) Start(id int, cmd Command, w Watcher) {
	p := &process{Command: cmd, sweeps: &c.starting, over: make(chan struct{}), caught: make(chan int, 1)}
	err := p.open(c.input)
	c.mu.Lock()
	if _, twice := c.processes[id]; twice && err == nil {
		err = fmt.Errorf("%d runs already", id)
	}
	if c.closed && err == nil {
		err = fmt.Errorf("the launcher is ending")
	}
	if err != nil {
		c.mu.Unlock()
		p.close()
		go func() {
			NotStarted(w, 1, err)
			w.Over()
		}()
		return
	}
	c.processes[id] = p
	c.mu.Unlock()
	go func() {
		c.run(p, w)
		p.close()
		c.mu.Lock()
		delete(c.processes, id)
		c.mu.Unlock()
		w.Over()
	}()
}

// NotStarted tells a watcher that there is no process.
func NotStarted(w Watcher, code int, err error) {
	w.Ended(Outcome{Code: code, Err: err})
	w.Gone()
}

// run runs one command from its start to its end.
func (c *LocalCrew) run(p *process, w Watcher) {
	c.room <- struct{}{}
	c.starting.RLock()
	code, err := p.start()
	c.starting.RUnlock()
	<-c.room
	if err != nil {
		NotStarted(w, code, err)
		return
	}
	p.watch(w, func() { c.orphans.sweep(p.pid, c.living) })
}

// living calls f with the pids of all supervisors that have not been reaped. None starts while f runs.
func (c *LocalCrew) living(f func(pids []int)) {
	c.starting.Lock()
	defer c.starting.Unlock()
	c.mu.Lock()
	var pids []int
	for _, p := range c.processes {
		if s := p.supervisor.Load(); s != nil && !p.reaped.Load() {
			pids = append(pids, s.Pid)
		}
	}
	c.mu.Unlock()
	f(pids)
}

func (c *LocalCrew) Signal(id int, sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[id]; p != nil {
		p.signal(sig)
	}
}

// Kill kills all living commands.
func (c *LocalCrew) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		p.signal(syscall.SIGKILL)
	}
}

// Close leaves living commands to their supervisors, which end them.
func (c *LocalCrew) Close() {
	c.mu.Lock()
	c.closed = true
	for _, p := range c.processes {
		p.leave()
		p.control.Close()
		p.wake()
	}
	c.mu.Unlock()
	c.orphans.close()
	if c.input != nil {
		c.input.Close()
	}
}
