package launch

import (
	"os"
	"sync/atomic"
	"syscall"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// leaveVariable is --leave-on as a variable.
const leaveVariable = "GOROVOD_LEAVE_ON"

// departure brings the news that this node is to leave the job.
type departure struct {
	why  chan string  // a reason; empty if the node is to end at once
	code atomic.Int32 // the launcher's exit code, once there is a reason
}

// departures listens for signals, and looks for the notice at where, unless that is empty. A node that leaves exits as
// if the signal had killed it, so that nobody takes its work for done. say gets lines for the user.
func departures(where string, say func(text string)) *departure {
	d := &departure{why: make(chan string, 8)}
	signals := make(chan os.Signal, 4)
	spawn.Notify([]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, signals) // until the launcher ends
	notice := make(chan string, 1)
	if where != "" {
		go func() { notice <- awaitNotice(where, say) }()
	}
	go func() {
		for first := true; ; first = false {
			why, sig := "", syscall.SIGTERM
			select {
			case s := <-signals:
				sig = s.(syscall.Signal)
				why = "its launcher got " + rendezvous.SignalName(int(sig))
				if !first {
					why = ""
				}
			case why = <-notice:
				if !first {
					continue
				}
			}
			d.code.CompareAndSwap(0, int32(ending.SignalCode(sig)))
			select {
			case d.why <- why:
			default:
			}
		}
	}()
	return d
}
