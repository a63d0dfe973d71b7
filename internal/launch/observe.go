package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/joining/observer"
	"github.com/gorovod/gorovod/internal/launch/audience"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// observe is the hidden subcommand that shows a job that no horovodrun has started: see package observer. Its stdin is
// the socket that leads to rank 0's process. First, without an argument, it cuts its ties with that process: it starts
// itself again, with the process's id, and ends. Then it shows the job until that process ends.
func observe(args []string) (code int, err error) {
	if len(args) > 1 {
		return ending.UsageCode, errors.New(observer.Subcommand + " is for the processes of a job")
	}
	if len(args) == 0 {
		if err := observeApart(); err != nil {
			return 1, fmt.Errorf("nothing shows the job: %w", err)
		}
		return 0, nil
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return ending.UsageCode, fmt.Errorf("%s %q: a process id is needed", observer.Subcommand, args[0])
	}
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		return 1, fmt.Errorf("nothing shows the job: %w", err)
	}
	os.Stdin.Close()
	defer conn.Close()
	closeAfter(pid, conn)
	return serveObserver(pid, conn)
}

// observeApart starts the observer of the process at the other end of stdin.
func observeApart() error {
	pid, err := cutLoose()
	if err != nil {
		return err
	}
	program, err := spawn.RunningProgram()
	if err != nil {
		return err
	}
	return (&exec.Cmd{Path: program, Args: []string{"gorovod", observer.Subcommand, strconv.Itoa(pid)}, Stdin: os.Stdin,
		Stderr: os.Stderr}).Start()
}

// serveObserver shows what the process tells, until it ends.
func serveObserver(pid int, conn net.Conn) (code int, err error) {
	var first observer.News
	if err := first.Read(conn); err != nil {
		return 0, nil // the process has ended at once
	}
	if first.Hello != observer.Shape() {
		return 1, fmt.Errorf("nothing shows the job: this command is of another build of gorovod (%s) than the "+
			"library of rank 0 (%.64q): install the same everywhere", observer.Shape(), first.Hello)
	}
	a, err := audience.OpenReaders(&flags.Flags{}, audience.Sayer("gorovod"), 0)
	if err != nil {
		return 1, fmt.Errorf("nothing shows the job: %w", err)
	}
	defer a.Close()
	a.Overview.Identify(overview.Identity{PID: pid})
	w := &watched{audience: a, conn: conn}
	w.follow(pid)
	a.End(w.ending(pid))
	return 0, nil
}

// watched is a job that rank 0's process tells of.
type watched struct {
	audience *audience.Audience
	conn     net.Conn
	joined   atomic.Int64
	asked    atomic.Bool       // rank 0's process has not answered the last question: it may be stopped
	over     *observer.Over    // nil: rank 0 takes part
	failure  *observer.Failure // of rank 0's generation, or a later one; nil: none

	writing sync.Mutex
}

// follow takes the news of a process until there are no more.
func (w *watched) follow(pid int) {
	for {
		var n observer.News
		if n.Read(w.conn) != nil {
			return
		}
		switch {
		case n.World != nil:
			w.joined.Store(0)
			w.over, w.failure = nil, nil
			w.audience.Overview.Identify(overview.Identity{PID: pid, Peers: n.World.Peers})
			w.audience.Begin(audience.World{Size: n.World.Size, From: n.World.From,
				Joined: func() int { return int(w.joined.Load()) },
				Inquiry: &audience.Inquiry{Ask: func() {
					if !w.asked.Swap(true) {
						w.wish(observer.Wish{Ask: true})
					}
				}},
				Inspect: func(ranks []int) { w.wish(observer.Wish{Inspect: &ranks}) }})
		case n.Joined != nil:
			w.joined.Store(int64(*n.Joined))
			w.asked.Store(false)
		case n.Figures != nil:
			f := n.Figures
			if f.Rank == 0 && len(f.Value) > 0 {
				w.over = nil // its program has called hvd.init() again
				if w.failure != nil && f.Generation > w.failure.Generation {
					w.failure = nil
				}
			}
			w.audience.Take(f.Rank, f.Generation, f.Host, f.Value)
		case n.Failure != nil:
			w.failure = n.Failure
			w.audience.Overview.Broke(n.Failure.Generation, n.Failure.Cause)
		case n.Over != nil:
			w.over = n.Over
		}
	}
}

// wish sends a wish, which the socket takes at once: there is at most one question, and few other wishes.
func (w *watched) wish(wish observer.Wish) {
	w.writing.Lock()
	defer w.writing.Unlock()
	wish.Write(w.conn)
}

// ending is how the job has ended, for audience.end.
func (w *watched) ending(pid int) (code int, why output.Report, err error) {
	switch {
	case w.over == nil && w.failure != nil:
		return 1, output.Report{Text: w.failure.Cause}, nil
	case w.over == nil:
		return 1, output.Report{Text: fmt.Sprintf("rank 0 (process %d) has ended without hvd.shutdown()", pid)}, nil
	case w.over.Failure != "":
		return 1, output.Report{Text: w.over.Failure}, nil
	}
	return 0, output.Report{}, nil
}
