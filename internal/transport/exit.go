package transport

import "syscall"

// Exit asks the kernel how a process has ended. known is false before Linux 6.15, and until the parent has reaped the
// process. It may be called as long as the caller that was given it has not returned.
type Exit func() (status syscall.WaitStatus, known bool)
