//go:build linux

package shm

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// A driver can sleep on its alarm and on something else, and finds out which of them woke it.
func TestAlarmAmongOthers(t *testing.T) {
	nets := openWorld(t, 2, func(c *Config) { c.Alarm = true })
	var other [2]int
	if err := unix.Pipe(other[:]); err != nil {
		t.Fatal(err)
	}
	defer closeAll(other[:])
	a := nets[1].Bell().(transport.Alarm)
	sleep := func(ticket uint32) (rung, ready bool) {
		for {
			p := []unix.PollFd{{Fd: int32(a.FD()), Events: unix.POLLIN}, {Fd: int32(other[0]), Events: unix.POLLIN}}
			// a lost ring is a time-out of the test
			if _, err := unix.Poll(p, -1); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			a.Clear()
			if rung, ready = a.Rung(ticket), p[1].Revents != 0; rung || ready {
				a.Disarm()
				return rung, ready
			}
		}
	}
	ticket := a.Arm()
	go nets[0].Bell().Ring() // not this one
	go nets[0].head.ring(1)
	if rung, ready := sleep(ticket); !rung || ready {
		t.Errorf("rung %v, ready %v", rung, ready)
	}
	ticket = a.Arm()
	go unix.Write(other[1], one)
	if rung, ready := sleep(ticket); rung || !ready {
		t.Errorf("rung %v, ready %v", rung, ready)
	}
	// A ring during which nobody slept does not end a later sleep.
	a.Arm()
	nets[0].head.ring(1)
	a.Disarm()
	ticket = a.Arm()
	began := time.Now()
	a.Sleep(ticket, 20*time.Millisecond)
	if d := time.Since(began); d < 20*time.Millisecond || a.Rung(ticket) {
		t.Errorf("it has slept %v", d)
	}
	nets[1].Close()
	if a.FD() != -1 {
		t.Error("the descriptor of a closed network is handed out")
	}
	a.Clear()
}

// More descriptors than one message can carry arrive in order.
func TestAlarmsOfManyRanks(t *testing.T) {
	before := maxRights
	maxRights = 2
	defer func() { maxRights = before }()
	nets := openWorld(t, 5, func(c *Config) { c.Alarm = true })
	for to, n := range nets {
		bell := n.Bell()
		ticket := bell.Arm()
		nets[(to+3)%5].head.ring(to)
		bell.Sleep(ticket, time.Hour)
	}
}
