package bench

import "syscall"

// jobAttributes keep a terminal's Ctrl-C from the launchers, which are ended in
// order instead, and end them should this process be killed.
func jobAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
