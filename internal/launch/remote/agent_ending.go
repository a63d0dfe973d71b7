package remote

import (
	"fmt"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/wire"
)

// commands stands for all commands of an agent in its ending.State: they are gone together.
const commands = 0

// do carries out how the commands here end: package ending decides.
func (a *Agent) do(actions []ending.Action) {
	crew := a.crew.Load() // nil before the job
	for _, action := range actions {
		switch action := action.(type) {
		case ending.Depart:
			a.tell(wire.Note{Type: wire.GoingNote, Text: a.leaving(action)})
		case ending.Pass: // SIGKILL: supervisors send all other signals, after Release
			if crew != nil {
				crew.Kill()
			}
		case ending.Release:
			if action.Signal != 0 {
				a.tell(wire.Note{Type: wire.RefusedNote, Text: a.ended(action.Signal)})
			}
			a.drop()
			if crew != nil {
				crew.Close()
			}
		}
	}
}

// leaving is why this host leaves the job, in the launcher's words.
func (a *Agent) leaving(d ending.Depart) string {
	switch {
	case d.Notice != "":
		return d.Notice
	case a.own:
		return "its launcher got " + rendezvous.SignalName(int(d.Signal))
	}
	return "its agent got " + rendezvous.SignalName(int(d.Signal))
}

// ended is why the agent ends, in the launcher's words.
func (a *Agent) ended(sig syscall.Signal) string {
	if a.own && a.ends.Hurried() {
		return "its launcher was ended by a second signal"
	}
	return fmt.Sprintf("the agent was ended by a signal: %v", sig)
}

// end ends all commands, and waits for a bounded time until their processes are gone.
func (a *Agent) end() {
	a.do(a.ends.Cut(time.Now()))
	none := make(chan struct{})
	go func() {
		a.left.Wait()
		close(none)
	}()
	for !a.ends.Over() {
		at, _ := a.ends.Next()
		select {
		case <-none:
			a.ends.Gone(commands)
		case <-time.After(time.Until(at)):
			a.do(a.ends.Tick(time.Now()))
		}
	}
}
