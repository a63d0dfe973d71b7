package pulse

import (
	"time"

	"golang.org/x/sys/unix"
)

// keepAlive makes the kernel probe the other end's kernel every so often while nothing comes; with 0 it does not. The
// kernel never breaks the connection for a missing answer: the caller looks at Silence, and decides.
func keepAlive(fd int, every time.Duration) error {
	if every <= 0 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	}
	seconds := max(1, int(every/time.Second))
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 127},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return err
		}
	}
	return nil
}

// Stuck is the size of full packets while some wait to be acknowledged, or to be sent; 0 if none do.
func Stuck(fd int) int {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.Unacked == 0 && info.Notsent_bytes == 0 {
		return 0
	}
	return int(info.Snd_mss)
}

// Silence is how long neither data nor an acknowledgement has come. The other end's kernel acknowledges even while its
// process is stopped or busy.
func Silence(fd int) (time.Duration, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, err
	}
	return time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond, nil
}
