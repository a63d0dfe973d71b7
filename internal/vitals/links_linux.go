package vitals

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// load is what a TCP connection has sent so far, and for how many microseconds it has had data under way that the other
// end had not confirmed, without the time in which the other end had no room for more. ok is false for what is none.
func load(fd int) (l traffic, ok bool) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return traffic{}, false
	}
	return traffic{us: info.Busy_time - min(info.Busy_time, info.Rwnd_limited), bytes: info.Bytes_acked}, true
}

// peer is the address of the other end, "" if unknown.
func peer(fd int) string {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return ""
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr).String()
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap().String()
	}
	return ""
}
