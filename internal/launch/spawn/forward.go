package spawn

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// Forwarded are the signals that users give a meaning of their own, such as "save a checkpoint now". They do not end
// the job. A signal of these reaches only processes that catch it, because it would kill others.
var Forwarded = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}

// isForwarded reports whether sig is one of Forwarded.
func isForwarded(sig syscall.Signal) bool { return sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 }

// ForwardTime is how long a launcher waits until all hosts have said which of their ranks got a signal.
const ForwardTime = 3 * time.Second

// Delivery is how many ranks got a forwarded signal.
type Delivery struct {
	Asked  int // the ranks that run
	Caught int // those with a process that catches the signal, and so got it
	Silent int // those that have not answered: a stopped supervisor, or a host that is lost
}

func (d Delivery) plus(o Delivery) Delivery {
	return Delivery{d.Asked + o.Asked, d.Caught + o.Caught, d.Silent + o.Silent}
}

// Text tells the user what became of the signal. of is which ranks are meant: empty, or " of this node".
func (d Delivery) Text(sig syscall.Signal, of string) string {
	name := rendezvous.SignalName(int(sig))
	var b strings.Builder
	switch deaf := d.Asked - d.Caught - d.Silent; {
	case d.Asked == 0:
		return fmt.Sprintf("%s is not forwarded: no rank%s runs now", name, of)
	case d.Caught == d.Asked:
		fmt.Fprintf(&b, "forwarded %s to %s%s", name, ranksText(d.Caught), of)
	case deaf == d.Asked:
		fmt.Fprintf(&b, "%s is not forwarded: no rank%s catches it, so it would kill them", name, of)
	default:
		fmt.Fprintf(&b, "forwarded %s to %d of %s%s", name, d.Caught, ranksText(d.Asked), of)
		if deaf > 0 {
			fmt.Fprintf(&b, "; it would kill %d, which catch no %s", deaf, name)
		}
	}
	if d.Silent > 0 {
		fmt.Fprintf(&b, "; no answer about %d (stopped, or lost)", d.Silent)
	}
	return b.String()
}

func ranksText(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}

// Level is the level of the text: a warning if some rank did not get the signal.
func (d Delivery) Level() slog.Level {
	if d.Asked == 0 || d.Caught < d.Asked {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// ForwardEach has deliver forward each signal of Forwarded that this process gets, and gives said the result, until
// stop is called. Stop waits for a delivery that is under way.
func ForwardEach(deliver func(context.Context, syscall.Signal) Delivery, said func(Delivery, syscall.Signal)) (
	stop func()) {
	signals := make(chan os.Signal, 16)
	silence := Notify(Forwarded, signals)
	ctx, cancel := context.WithCancel(context.Background())
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for s := range signals {
			sig := s.(syscall.Signal)
			limited, done := context.WithTimeout(ctx, ForwardTime)
			said(deliver(limited, sig), sig)
			done()
		}
	})
	return func() {
		silence()
		cancel()
		close(signals)
		forwarding.Wait()
	}
}

// WithoutRanks says, until stop is called, of each signal of Forwarded that there is no rank to forward it to.
func WithoutRanks(say func(text string)) (stop func()) {
	return ForwardEach(func(context.Context, syscall.Signal) Delivery { return Delivery{} },
		func(d Delivery, sig syscall.Signal) { say(d.Text(sig, "")) })
}

// ForwardTo forwards a signal to the commands of all crews.
func ForwardTo(ctx context.Context, crews map[string]Crew, sig syscall.Signal) (d Delivery) {
	seen := map[Crew]bool{} // several names of this host share a crew
	answers, asked := make(chan Delivery), 0
	for _, c := range crews {
		if !seen[c] {
			seen[c] = true
			asked++
			go func() { answers <- c.Forward(ctx, sig) }()
		}
	}
	for range asked {
		d = d.plus(<-answers)
	}
	return d
}

// Forward asks the supervisors of all commands. A signal that comes again within echoTime is the same one: the launcher
// of this node and that of node 0 may both have got it.
func (c *LocalCrew) Forward(ctx context.Context, sig syscall.Signal) Delivery {
	c.forwarding.Lock()
	defer c.forwarding.Unlock()
	if last := c.last[sig]; time.Since(last.at) < echoTime {
		return last.delivery
	}
	began := time.Now()
	c.mu.Lock()
	var asked []*process
	for _, p := range c.processes {
		if p.running() {
			asked = append(asked, p)
		}
	}
	c.mu.Unlock()
	for _, p := range asked {
		p.ask(sig)
	}
	var d Delivery
	for _, p := range asked {
		caught, known, over := p.answer(ctx)
		switch {
		case over:
			continue
		case !known:
			d.Silent++
		case caught > 0:
			d.Caught++
		}
		d.Asked++
	}
	c.last[sig] = echo{began, d}
	return d
}

// echo is what the last signal of a number has come to.
type echo struct {
	at       time.Time
	delivery Delivery
}

// running reports whether the command has a supervisor, and has not ended.
func (p *process) running() bool {
	select {
	case <-p.over:
		return false
	default:
		return p.supervisor.Load() != nil
	}
}

// ask has the supervisor forward sig.
func (p *process) ask(sig syscall.Signal) {
	for len(p.caught) > 0 { // a late answer to an earlier question
		<-p.caught
	}
	p.control.Write([]byte{byte(sig)}) // an error means that the supervisor is gone, and then so is its command
}

// answer waits until the supervisor has said how many processes got the signal. over: the command has ended before.
func (p *process) answer(ctx context.Context) (processes int, known, over bool) {
	select {
	case n := <-p.caught:
		return n, true, false
	case <-p.over:
		return 0, false, true
	case <-ctx.Done():
		return 0, false, false
	}
}

// heard takes the supervisor's answer.
func (p *process) heard(processes int) {
	select {
	case p.caught <- processes:
	default: // nobody asks
	}
}
