package vitals

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// load is how many bytes a TCP connection has sent so far, and for how many microseconds it had unacknowledged data
// under way. The time in which the other end had no room for more does not count. ok is false for other descriptors.
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
