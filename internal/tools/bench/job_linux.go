package bench

import "syscall"

// jobAttributes keep a terminal's Ctrl-C from the launchers, which bench ends in order instead. The kernel ends the
// launchers if this process is killed.
func jobAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
