package notice

import (
	"os"
	"sync/atomic"
	"syscall"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// LeaveVariable is --leave-on as a variable.
const LeaveVariable = "GOROVOD_LEAVE_ON"

// Departure brings the news that this node is to leave the job.
type Departure struct {
	Why  chan string  // a reason; empty if the node is to end at once
	Code atomic.Int32 // the launcher's exit code, once there is a reason
}

// Watch listens for signals, and looks for the notice at where, unless that is empty. A node that leaves exits as
// if the signal had killed it, so that nobody takes its work for done. say gets lines for the user.
func Watch(where string, say func(text string)) *Departure {
	d := &Departure{Why: make(chan string, 8)}
	signals := make(chan os.Signal, 4)
	spawn.Notify([]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, signals) // until the launcher ends
	notice := make(chan string, 1)
	if where != "" {
		go func() { notice <- Await(where, say) }()
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
			d.Code.CompareAndSwap(0, int32(ending.SignalCode(sig)))
			select {
			case d.Why <- why:
			default:
			}
		}
	}()
	return d
}
