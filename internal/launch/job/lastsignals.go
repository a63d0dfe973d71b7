package job

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

const (
	// readerPatience is how long the end of a job waits for a reader of its output that does not read.
	readerPatience = 2 * time.Second
	// lastMessage replaces readerPatience once readers were given up, or after a second signal.
	lastMessage = 100 * time.Millisecond
	// forceTime is how long the launcher may take to end after a second signal.
	forceTime = 2 * time.Second
)

// begin opens the job's output and catches the launcher's signals, until end. It returns those that end the job.
func (j *Job) begin() (signals <-chan os.Signal, end func()) {
	if j.Audience == nil {
		j.Audience = nobody{}
	}
	j.hungUp, j.moved = make(chan struct{}), make(chan struct{}, 1)
	j.openProgress()
	stdout, stderr := j.progress.Over(j.Stdout), j.progress.Over(j.Stderr)
	j.out = output.NewPrinter(spawn.StreamNames[spawn.Stdout], stdout, j.moved, func(err error) { j.lose(err, j.err) })
	j.err = output.NewPrinter(spawn.StreamNames[spawn.Stderr], stderr, j.moved, func(err error) { j.lose(err, j.out) })
	// Without this, writing to a closed pipe would end the launcher. The processes would inherit an ignored signal.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	// A shell starts background jobs with SIGINT ignored, but a SIGINT that is sent to the launcher's pid is meant.
	// nohup must keep its effect.
	wanted := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		wanted = append(wanted, syscall.SIGHUP)
	}
	caught, counted := make(chan os.Signal, 16), make(chan os.Signal, 16)
	stop := spawn.Notify(wanted, caught, counted)
	go force(counted)
	unforward := spawn.ForwardEach(j.forward, func(d spawn.Delivery, sig syscall.Signal) {
		j.log(d.Level(), "%s", d.Text(sig, ""))
	})
	return caught, func() {
		stop()
		unforward()
		close(counted)
		j.progress.Close()
		j.print(j.patience())
		signal.Stop(pipe)
	}
}

// force ends the launcher forceTime after a second signal, or at a third one at once, whatever the launcher waits for,
// for example a host that does not answer. The rest of the job ends by itself.
func force(signals <-chan os.Signal) {
	first, ok := <-signals
	if !ok {
		return
	}
	if _, ok = <-signals; !ok {
		return
	}
	var over atomic.Bool
	last := func() {
		if !over.Load() {
			os.Exit(ending.SignalCode(first.(syscall.Signal)))
		}
	}
	timer := time.AfterFunc(forceTime, last)
	if _, ok = <-signals; ok {
		last()
	}
	over.Store(true)
	timer.Stop()
}

// patience is how long the job waits for readers now: readerPatience, or lastMessage once it is in a hurry.
func (j *Job) patience() time.Duration {
	if j.hurried {
		return lastMessage
	}
	return readerPatience
}

// print waits at most limit until the launcher's own messages are written.
func (j *Job) print(limit time.Duration) {
	j.err.Enlarge()
	written := make(chan struct{})
	go func() {
		j.err.Flush()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(limit):
	}
}

// LastWord prints this program's last message on stderr. It waits for a reader only a short time.
func LastWord(text string) {
	written := make(chan struct{})
	go func() {
		os.Stderr.WriteString(text)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(readerPatience):
	}
}

// drain waits, after all processes have ended, until the remaining output is written. It gives readers up when none has
// read anything for readerPatience; if the job was asked to end, readerPatience after the start. A signal ends the
// wait, and is returned; otherwise drain returns 0.
func (j *Job) drain(signals <-chan os.Signal, asked bool) syscall.Signal {
	j.out.Enlarge()
	j.err.Enlarge()
	taken, written := make(chan struct{}), make(chan struct{})
	go func() {
		j.taking.Wait()
		close(taken)
		j.out.Flush()
		j.err.Flush()
		close(written)
	}()
	patience := time.NewTimer(j.patience())
	defer patience.Stop()
	for {
		select {
		case <-written:
			return 0
		case <-j.moved:
			if !asked {
				patience.Reset(j.patience())
			}
			continue
		case s := <-signals:
			j.dropUnread()
			return s.(syscall.Signal)
		case <-patience.C:
			j.dropUnread()
		}
		break
	}
	// The files of --output-filename get what the readers have not read.
	select {
	case <-taken:
	case s := <-signals:
		return s.(syscall.Signal)
	case <-time.After(readerPatience):
		j.lost.Store(true)
	}
	return 0
}

// dropUnread discards the output for readers that do not read.
func (j *Job) dropUnread() {
	j.hurried = true
	out, err := j.out.IsBusy(), j.err.IsBusy() // ask both first: drop reports a loss on the other printer
	if out {
		j.out.Drop()
	}
	if err {
		j.err.Drop()
	}
}

// forward forwards a signal to the job's ranks.
func (j *Job) forward(ctx context.Context, sig syscall.Signal) spawn.Delivery {
	crews := j.running.Load()
	if crews == nil {
		return spawn.Delivery{}
	}
	return spawn.ForwardTo(ctx, (*crews)(), sig)
}
