package network

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Relay is the switch of a network with a delay. One thread takes each frame from a host's tap device, and hands it to
// its receiver's when its time has come. The rate out of a host is the kernel's (tbf), that into a host the relay's.
// Large TCP segments pass as one frame, as they do between virtual machines.
type Relay struct {
	link  Link
	ports []*port
	stop  int // an eventfd
	done  chan struct{}
	spare [][]byte
}

// port is a host's tap device.
type port struct {
	fd int
	// free is when the link into the host has room for the next frame.
	free  time.Duration
	queue []frame // in the order of due
	head  int
}

// frame is a frame with the header by which the kernel tells how it is to be segmented.
type frame struct {
	due   time.Duration
	bytes []byte
}

const (
	vnetHeader = 10
	frameBytes = vnetHeader + 14 + 64<<10
	smallFrame = 2 << 10
	// batchFrames is how many frames of a host are read before others have their turn.
	batchFrames = 16
	// relayPriority is the nice value of the relay's thread: a relay that waits for a core adds to the delay.
	relayPriority = -20
)

func newRelay(hosts []*Host, link Link) (r *Relay, err error) {
	r = &Relay{link: link, stop: -1, done: make(chan struct{})}
	defer func() {
		if err != nil {
			close(r.done)
			r.Close()
		}
	}()
	for _, h := range hosts {
		fd, err := tap(h)
		if err != nil {
			return r, fmt.Errorf("%s: %w", h.Name, err)
		}
		r.ports = append(r.ports, &port{fd: fd})
	}
	if r.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return r, err
	}
	go r.run()
	return r, nil
}

// tap makes a host's tap device eth0.
func tap(h *Host) (fd int, err error) {
	err = h.inside(func() error {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return os.NewSyscallError("open", err)
		}
		request, err := unix.NewIfreq(Interface)
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err == nil { // without these the kernel would split and sum everything beforehand
			err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
		}
		if err != nil {
			unix.Close(fd)
		}
		return os.NewSyscallError("ioctl", err)
	})
	return fd, err
}

// Close ends the relay's thread.
func (r *Relay) Close() {
	if r.stop >= 0 {
		unix.Write(r.stop, binary.NativeEndian.AppendUint64(nil, 1))
		<-r.done
		unix.Close(r.stop)
	}
	for _, p := range r.ports {
		unix.Close(p.fd)
	}
}

// run is the relay's thread. It is never given back, because its priority is its own.
func (r *Relay) run() {
	defer close(r.done)
	runtime.LockOSThread()
	unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), relayPriority) // it works without that, less exactly
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	begin := time.Now()
	look := make([]unix.PollFd, 0, len(r.ports)+1)
	for _, p := range r.ports {
		look = append(look, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
	}
	look = append(look, unix.PollFd{Fd: int32(r.stop), Events: unix.POLLIN})
	buffer := make([]byte, frameBytes)
	for {
		next, any := r.deliver(time.Since(begin))
		var wait *unix.Timespec
		if any {
			left := unix.NsecToTimespec(int64(max(0, next-time.Since(begin))))
			wait = &left
		}
		if _, err := unix.Ppoll(look, wait, nil); err != nil && err != unix.EINTR {
			return
		}
		if look[len(r.ports)].Revents != 0 {
			return
		}
		for i, p := range r.ports {
			if look[i].Revents&unix.POLLIN == 0 {
				continue
			}
			for range batchFrames {
				n, err := unix.Read(p.fd, buffer)
				if err != nil || n < vnetHeader+14 {
					break
				}
				r.take(i, buffer[:n], time.Since(begin))
			}
		}
	}
}

// take puts a frame into the queues of its receivers.
func (r *Relay) take(from int, p []byte, now time.Duration) {
	to := p[vnetHeader : vnetHeader+6]
	if to[0]&1 == 0 {
		if i := int(to[5]) - 1; i >= 0 && i < len(r.ports) && i != from {
			r.put(r.ports[i], p, now)
		}
		return
	}
	for i, q := range r.ports {
		if i != from {
			r.put(q, p, now)
		}
	}
}

// put gives a frame its time: it follows what is on its way into the host at the link's rate, except for a burst, and
// then it travels.
func (r *Relay) put(q *port, p []byte, now time.Duration) {
	due := now
	if rate := r.link.Rate; rate > 0 {
		took := func(n int) time.Duration { return time.Duration(float64(n) * 8e9 / float64(rate)) }
		q.free = max(q.free, now-took(burst(rate))) + took(wireBytes(p))
		due = max(now, q.free)
	}
	q.queue = append(q.queue, frame{due + r.link.Delay, append(r.buffer(len(p)), p...)})
}

// wireBytes is how long a frame is in all once it has been split into packets.
func wireBytes(p []byte) int {
	bytes := len(p) - vnetHeader
	header, size := int(binary.NativeEndian.Uint16(p[2:])), int(binary.NativeEndian.Uint16(p[4:]))
	if p[1] == 0 || size == 0 || header >= bytes { // it is not to be split
		return bytes
	}
	return bytes + (bytes-header-1)/size*header
}

// deliver hands over what is due, and returns when the next frame is.
func (r *Relay) deliver(now time.Duration) (next time.Duration, any bool) {
	for _, q := range r.ports {
		for q.head < len(q.queue) && q.queue[q.head].due <= now {
			f := &q.queue[q.head]
			unix.Write(q.fd, f.bytes) // a host without room loses it, as from a switch
			if len(r.spare) < 4096 {
				r.spare = append(r.spare, f.bytes[:0])
			}
			f.bytes = nil
			q.head++
		}
		switch {
		case q.head == len(q.queue):
			q.queue, q.head = q.queue[:0], 0
		case q.head > 1024:
			q.queue = q.queue[:copy(q.queue, q.queue[q.head:])]
			q.head = 0
		}
		if q.head < len(q.queue) && (!any || q.queue[q.head].due < next) {
			next, any = q.queue[q.head].due, true
		}
	}
	return next, any
}

// buffer is an empty buffer for n bytes.
func (r *Relay) buffer(n int) []byte {
	if last := len(r.spare) - 1; last >= 0 {
		b := r.spare[last]
		r.spare = r.spare[:last]
		if cap(b) >= n {
			return b
		}
	}
	return make([]byte, 0, max(n, smallFrame))
}
