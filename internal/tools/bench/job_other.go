//go:build !linux

package bench

import "syscall"

// jobAttributes keep a terminal's Ctrl-C from the launchers, which bench ends in order instead.
func jobAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
