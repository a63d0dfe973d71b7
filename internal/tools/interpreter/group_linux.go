package interpreter

import "syscall"

// ownGroup puts a process into a group of its own, so that its children can be killed with it, and has it killed when
// the thread that starts it ends, as that does when this program is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
