//go:build !linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// SupervisorName is the name under which the program would be a supervisor.
const SupervisorName = "gorovod-supervisor"

const (
	sweepLimit      = time.Second
	LeftoverGrace   = time.Second
	commandResultFD = 3
)

// Supervise is never called: CheckLimits refuses the job before.
func Supervise([]string) int { return 1 }

func CheckLimits(int) error {
	return fmt.Errorf("jobs are started on Linux only; this is %s", runtime.GOOS)
}

func CheckRemotes(int, int) error { return CheckLimits(0) }

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

// WakeWithParent does nothing: no job is started.
func WakeWithParent() {}

// supervisorAttr is never called: no job is started.
func supervisorAttr() *syscall.SysProcAttr { return nil }

// RunningProgram is never called: no job is started.
func RunningProgram() (string, error) { return "", errors.ErrUnsupported }
