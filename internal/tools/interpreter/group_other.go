//go:build !linux

package interpreter

import "syscall"

// ownGroup puts a process into a group of its own, so that its children can be killed with it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
