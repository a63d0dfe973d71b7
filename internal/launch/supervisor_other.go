//go:build !linux

package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// supervisorName is the name under which the program would be a supervisor.
const supervisorName = "gorovod-supervisor"

const (
	sweepLimit      = time.Second
	leftoverGrace   = time.Second
	commandResultFD = 3
)

// supervise is never called: checkLimits refuses the job before.
func supervise([]string) int { return 1 }

func checkLimits(int) error {
	return fmt.Errorf("jobs are started on Linux only; this is %s", runtime.GOOS)
}

func checkRemotes(int, int) error { return checkLimits(0) }

// orphanage does nothing: no job is started.
type orphanage struct{}

func adopt(string, bool) (*orphanage, error)         { return &orphanage{}, nil }
func (*orphanage) sweep(int, func(func(pids []int))) {}
func (*orphanage) close()                            {}

// vigil is never made: no job is started.
type vigil struct{}

func keepVigil(*process) *vigil                                         { return nil }
func (*vigil) end()                                                     {}
func (*vigil) fate() (how syscall.WaitStatus, at time.Time, known bool) { return }
func takeOrphan(int) (how syscall.WaitStatus, ok bool)                  { return }

// inMemory is never called: no job is started.
func inMemory(string, []byte) (*os.File, error) { return nil, errors.ErrUnsupported }

// wakeWithParent does nothing: no job is started.
func wakeWithParent() {}

// supervisorAttr is never called: no job is started.
func supervisorAttr() *syscall.SysProcAttr { return nil }

// runningProgram is never called: no job is started.
func runningProgram() (string, error) { return "", errors.ErrUnsupported }
