package reach

import (
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolSettings is the beginning of the kernel's struct ethtool_cmd.
type ethtoolSettings struct {
	command   uint32
	_, _      uint32
	speedLow  uint16
	_         [6]byte
	_, _      uint32
	speedHigh uint16
	_         [14]byte
}

// speedOf is the speed that an interface's driver reports, in Mbit/s; 0 if it reports none, as in many virtual
// machines. It asks the kernel rather than /sys, which shows the interfaces of the network namespace in which it was
// mounted.
func speedOf(name string) int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	settings := &ethtoolSettings{command: unix.ETHTOOL_GSET}
	request := struct {
		name [unix.IFNAMSIZ]byte
		at   unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}{at: unsafe.Pointer(settings)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(settings)
	speed := uint32(settings.speedHigh)<<16 | uint32(settings.speedLow)
	if errno != 0 || speed == math.MaxUint32 || speed == math.MaxUint16 { // unknown, also in the old form
		return 0
	}
	return int(speed)
}
