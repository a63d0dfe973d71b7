package vitals

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWhatACallMeans(t *testing.T) {
	const rest = " 0x3 0x7f808783b000 0x20000 0x7f80878cab60 0xffffffff 0x0 0x7ffd7bbc8f58 0x7f80879b32ad\n"
	for line, want := range map[string]doing{
		"running\n": other, "": other, "0": other, "x y": other,
		"-1 0x7ffd7bbc8f58 0x7f80879b32ad\n":               reading,
		fmt.Sprint(unix.SYS_READ, rest):                    reading,
		fmt.Sprint(unix.SYS_PPOLL, rest):                   reading,
		fmt.Sprint(unix.SYS_PSELECT6, rest):                reading,
		fmt.Sprint(unix.SYS_PSELECT6, " 0x0 0x0 0x0\n"):    asleep,
		fmt.Sprint(unix.SYS_CLOCK_NANOSLEEP, " 0x0 0x0\n"): asleep,
		fmt.Sprint(unix.SYS_FUTEX, rest):                   locked,
		fmt.Sprint(unix.SYS_GETPID, rest):                  other,
	} {
		if got := meaning([]byte(line)); got != want {
			t.Errorf("%q means %d, not %d", line, got, want)
		}
	}
}

// TestABusyConnectionIsFound sends over two connections, one of them slowly.
func TestABusyConnectionIsFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	links := &Links{}
	if got := links.Busiest(); got != (Link{}) {
		t.Errorf("%+v without connections", got)
	}
	links.Track(1<<20, true) // it is no connection
	const size = 1 << 20
	for _, rate := range []int{0, 10 * size} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		raw, _ := c.(*net.TCPConn).SyscallConn()
		raw.Control(func(fd uintptr) {
			links.Track(int(fd), true)
			if rate > 0 {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, rate)
			}
		})
		go c.Write(make([]byte, size))
		for got := 0; got < size; {
			n, err := other.Read(make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	var got Link
	for deadline := time.Now().Add(time.Minute); got.Bytes < size/2; got = links.Busiest() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v after a minute", got)
		}
		time.Sleep(time.Millisecond)
	}
	if got.To != "127.0.0.1" || got.Busy == 0 {
		t.Errorf("%+v", got)
	}
	if again := links.Busiest(); again.Bytes < got.Bytes || again.Busy < got.Busy {
		t.Errorf("%+v, then %+v", got, again)
	}
	links.Track(1<<20, false)
}
