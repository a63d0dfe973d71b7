package network

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// OneWay is half of the median round trip of a message of 4 bytes over TCP between the first two hosts, in seconds.
// Both ends sleep while they wait.
func (w *Network) OneWay() (float64, error) {
	const trips = 200
	port := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		failed <- w.Hosts[1].inside(func() error {
			defer close(port)
			l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(l)
			if err := unix.Bind(l, &unix.SockaddrInet4{}); err != nil {
				return err
			}
			if err := unix.Listen(l, 1); err != nil {
				return err
			}
			name, err := unix.Getsockname(l)
			if err != nil {
				return err
			}
			port <- name.(*unix.SockaddrInet4).Port
			fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			if err != nil {
				return err
			}
			return echo(fd, trips, nil)
		})
	}()
	at, ok := <-port
	if !ok {
		return 0, fmt.Errorf("listen on %s: %w", w.Hosts[1].Name, <-failed)
	}
	times := make([]time.Duration, trips)
	err := w.Hosts[0].inside(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 2) // connect gives up after some 7 s
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: at, Addr: [4]byte{10, 80, 0, 2}}); err != nil {
			unix.Close(fd)
			return fmt.Errorf("connect %s with %s: %w", w.Hosts[0].Name, w.Hosts[1].Name, err)
		}
		return echo(fd, trips, times)
	})
	if err != nil {
		return 0, err
	}
	if err := <-failed; err != nil {
		return 0, err
	}
	slices.Sort(times)
	return times[trips/2].Seconds() / 2, nil
}

// echo sends and receives 4 bytes so many times, and notes the times of the round trips. Without times it receives
// first.
func echo(fd, trips int, times []time.Duration) error {
	defer unix.Close(fd)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	p := make([]byte, 4)
	for i := range trips {
		begin := time.Now()
		if times != nil {
			if _, err := unix.Write(fd, p); err != nil {
				return os.NewSyscallError("write", err)
			}
		}
		n, err := unix.Read(fd, p)
		for err == unix.EINTR { // with a time-out, a signal ends the call
			n, err = unix.Read(fd, p)
		}
		if err != nil || n != len(p) {
			return fmt.Errorf("a round trip ended after %d of %d bytes: %w", n, len(p), os.NewSyscallError("read", err))
		}
		if times == nil {
			if _, err := unix.Write(fd, p); err != nil {
				return os.NewSyscallError("write", err)
			}
			continue
		}
		times[i] = time.Since(begin)
	}
	return nil
}

// inside calls f on a thread in the host's network. f starts no goroutine.
func (h *Host) inside(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	there, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", h.PID()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() {
		if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
			panic(back) // nothing else could run on this thread
		}
	}()
	return f()
}
