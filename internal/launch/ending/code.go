package ending

import (
	"fmt"
	"syscall"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// UsageCode is the exit code for invalid arguments.
const UsageCode = 2

// LostCode is the exit code after the loss of a host, as ssh has it.
const LostCode = 255

// Code is the exit code that a shell would have for a death.
func Code(d rendezvous.Death) int {
	if d.Lost != "" {
		return LostCode
	}
	if d.Signal != 0 {
		return SignalCode(syscall.Signal(d.Signal))
	}
	return d.ExitCode
}

// SignalCode is the exit code that a shell would have for a signal.
func SignalCode(sig syscall.Signal) int { return 128 + int(sig) }

// Interruption says that a signal has ended the job.
func Interruption(sig syscall.Signal) string {
	return fmt.Sprintf("interrupted by signal %d (%s)", int(sig), rendezvous.SignalName(int(sig)))
}
