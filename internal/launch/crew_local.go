package launch

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// startsAtATime is how many supervisors start together. More would only compete for the processors.
const startsAtATime = 8

// localCrew runs commands on this host. A process has at most one, because the process is the reaper of everything that
// the crew's supervisors may leave behind.
type localCrew struct {
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

// newLocalCrew makes the crew of this host. All its commands have secret as secretVariable. others: this process has
// other children, too.
func newLocalCrew(host, secret string, others bool) (*localCrew, error) {
	orphans, err := adopt(secret, others)
	if err != nil {
		return nil, err
	}
	return &localCrew{host: host, orphans: orphans, room: make(chan struct{}, startsAtATime),
		never: make(chan struct{}), processes: map[int]*process{}, last: map[syscall.Signal]echo{}}, nil
}

func (c *localCrew) Host() string          { return c.host }
func (c *localCrew) Lost() <-chan struct{} { return c.never }
func (c *localCrew) Err() error            { return nil }

// feed gives each command that starts from now on a stdin with these bytes; nil is an empty stdin.
func (c *localCrew) feed(input []byte) (err error) {
	if input != nil {
		c.input, err = inMemory("input", input)
	}
	return err
}

func (c *localCrew) Start(id int, cmd command, w watcher) {
	p := &process{command: cmd, sweeps: &c.starting, over: make(chan struct{}), caught: make(chan int, 1)}
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
			notStarted(w, 1, err)
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

// notStarted tells a watcher that there is no process.
func notStarted(w watcher, code int, err error) {
	w.Ended(outcome{Code: code, Err: err})
	w.Gone()
}

// run runs one command from its start to its end.
func (c *localCrew) run(p *process, w watcher) {
	c.room <- struct{}{}
	c.starting.RLock()
	code, err := p.start()
	c.starting.RUnlock()
	<-c.room
	if err != nil {
		notStarted(w, code, err)
		return
	}
	p.watch(w, func() { c.orphans.sweep(p.pid, c.living) })
}

// living calls f with the pids of all supervisors that have not been reaped. None starts while f runs.
func (c *localCrew) living(f func(pids []int)) {
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

func (c *localCrew) Signal(id int, sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[id]; p != nil {
		p.signal(sig)
	}
}

// kill kills all living commands.
func (c *localCrew) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		p.signal(syscall.SIGKILL)
	}
}

// Close leaves living commands to their supervisors, which end them.
func (c *localCrew) Close() {
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
