package bench

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// Some contenders have threads that work even while their ranks wait for an order: those of Horovod wake each
// millisecond to ask one another for tensors. Such a contender rests: its ranks are stopped outside of its turns, so
// that they take no processor time from the others.

// acquaint finds the process of a new rank of a contender that rests.
func (c *contender) acquaint(conn net.Conn) error {
	if !c.rests {
		return nil
	}
	pid, err := peerPid(conn)
	if err != nil {
		return fmt.Errorf("find the rank's process, to stop it outside of its turns: %w", err)
	}
	p, err := os.FindProcess(pid) // a pidfd, so that no other process is ever stopped
	if err != nil {
		return err
	}
	c.ranks = append(c.ranks, p)
	return nil
}

// rest stops the ranks of a contender that rests.
func (c *contender) rest() { c.signal(syscall.SIGSTOP) }

// wake lets them continue. It is safe on any goroutine.
func (c *contender) wake() { c.signal(syscall.SIGCONT) }

func (c *contender) signal(s syscall.Signal) {
	for _, p := range c.ranks {
		p.Signal(s) // a rank that has ended needs none
	}
}
