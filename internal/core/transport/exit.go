package transport

import "syscall"

// Exit asks the kernel how a process has ended. known is false before Linux 6.15, and until the parent has reaped the
// process. Do not call it after the function that got it has returned.
type Exit func() (status syscall.WaitStatus, known bool)
