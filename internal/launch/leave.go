package launch

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/remote"
)

// leaveCommand is what the preStop hook of an MPIJob's worker runs.
var leaveCommand = &commandline.Command{
	Name:  "leave",
	About: "Have this host leave the jobs that launchers on other hosts have started here",
	Detail: `An elastic job with a host discovery script goes on without this host: the processes here commit and end, and the
command returns when they have. A job that needs this host ends. Agents of other users and of other containers stay.
The preStop hook of an MPIJob's worker runs this.`,
	Examples: []commandline.Example{{Line: "gorovod leave", About: "Before this host is shut down."}},
	Grammar:  func() any { return &struct{}{} },
}

// leaveEvery is the time between two looks for agents.
const leaveEvery = 50 * time.Millisecond

// leave is the command gorovod leave: it sends SIGTERM to each agent on this host, once, and waits until no agent is
// left.
func leave(name string, args []string) (code int, err error) {
	help, err := leaveCommand.Parse(name, &struct{}{}, args)
	switch {
	case err != nil:
		return ending.UsageCode, err
	case help != "":
		return show(name, help), nil
	}
	told := map[int]bool{}
	for ; ; time.Sleep(leaveEvery) {
		agents, err := remote.AgentsHere()
		switch {
		case err != nil:
			return 1, err
		case len(agents) == 0 && len(told) == 0:
			return show(name, "no other host's launcher has started anything here\n"), nil
		case len(agents) == 0:
			return 0, nil
		}
		for _, pid := range agents {
			if told[pid] {
				continue
			}
			if p, err := os.FindProcess(pid); err == nil {
				if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
					return 1, fmt.Errorf("the agent with pid %d: %w", pid, err)
				}
			}
			told[pid] = true
		}
	}
}
