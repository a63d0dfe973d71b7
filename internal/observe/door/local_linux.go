package door

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/peercred"
)

// localPrefix begins the names of the sockets for readers on this host. The process id follows, and a number that
// distinguishes the sockets of one process. The sockets are abstract, so they leave no files behind.
const localPrefix = "@gorovod/watch/"

// ListenLocal opens a socket that only processes of this user and of root on this host can read. At most conns
// connections are open at a time.
func ListenLocal(conns int) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("%s%d/%d", localPrefix, os.Getpid(),
		time.Now().UnixNano()), Net: "unix"})
	if err != nil {
		return nil, err
	}
	return newBounded(own{l}, conns), nil
}

// own is a listener that closes the connections of other users at once.
type own struct{ *net.UnixListener }

func (l own) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if peercred.Trusted(c) {
			return c, nil
		}
		c.Close()
	}
}

// Locals are the sockets of ListenLocal on this host, of all users, by the id of the process that really listens,
// because any process can name a socket after another process.
func Locals() (map[int]string, error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) != 8 || !strings.HasPrefix(fields[7], localPrefix) {
			continue
		}
		pid := listener(fields[7])
		if pid == 0 || names[pid] != "" && !strings.HasPrefix(fields[7], fmt.Sprintf("%s%d/", localPrefix, pid)) {
			continue
		}
		names[pid] = fields[7]
	}
	return names, nil
}

// listener is the process that listens at a socket; 0 if there is none. It does not wait: if many connections are
// pending, the kernel refuses at once.
func listener(name string) int {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return 0
	}
	defer c.Close()
	p, err := peercred.Of(c)
	if err != nil {
		return 0
	}
	return int(p.Pid)
}

// ErrOther: the socket is not that of the process whose number it has, or the process is another user's.
var ErrOther = errors.New("it belongs to another user")

// DialLocal connects to the socket of a process: see Locals. It refuses a socket that another process has opened under
// this process's number. It refuses another user's socket, unless this user is root.
func DialLocal(pid int, name string, limit time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout("unix", name, limit)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, ErrOther
	}
	p, err := peercred.Of(u)
	switch {
	case err != nil:
	case int(p.Pid) != pid || os.Getuid() != 0 && int(p.Uid) != os.Getuid():
		err = ErrOther
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
