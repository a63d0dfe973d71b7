package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lateOutput reads the command's output once the launcher is gone. Without it a process that still has something to
// say, or a commit to keep, would die of a broken pipe.
type lateOutput struct {
	where string
	pipes [2]*os.File // stdout and stderr
	taken bool
	said  sync.WaitGroup

	mu    sync.Mutex
	files map[string]*os.File // by name; nil if the file cannot be opened
}

// inheritLateOutput takes over the pipes that begin at descriptor fd. It returns nil if there are none.
func inheritLateOutput(fd int) *lateOutput {
	where := os.Getenv(lateOutputVariable)
	if where == "" {
		return nil
	}
	os.Unsetenv(lateOutputVariable)
	l := &lateOutput{where: where, files: map[string]*os.File{}}
	for i := range l.pipes {
		unix.CloseOnExec(fd + i)
		l.pipes[i] = os.NewFile(uintptr(fd+i), StreamNames[i])
	}
	return l
}

// take begins to read the output. The files appear with the first output.
func (l *lateOutput) take() {
	if l == nil || l.taken {
		return
	}
	l.taken = true
	for i, p := range l.pipes {
		l.said.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := p.Read(buf)
				if n > 0 {
					l.put(i, buf[:n])
				}
				if err != nil {
					return
				}
			}
		})
	}
}

// put writes a stream's output; what it cannot write is lost.
func (l *lateOutput) put(stream int, text []byte) {
	// A directory for temporary files is open to all users, so the file must be new.
	name, how := filepath.Join(os.TempDir(), l.where), os.O_EXCL
	if filepath.IsAbs(l.where) {
		name, how = filepath.Join(l.where, StreamNames[stream]), os.O_APPEND
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.files[name]
	if !ok {
		f, _ = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|how, 0o600)
		l.files[name] = f
		if f != nil {
			fmt.Fprintf(f, "[%s: the launcher is gone, or cannot be reached. What follows was printed since.]\n",
				time.Now().Format(time.RFC3339))
		}
	}
	if f != nil {
		f.Write(text)
	}
}

// end waits for the end of the output, for a bounded time, because an escaped process may hold a pipe open. gone: the
// launcher is gone; the command may have noticed before this program.
func (l *lateOutput) end(gone bool) {
	if l == nil {
		return
	}
	if gone {
		l.take()
	}
	for _, p := range l.pipes {
		p.SetReadDeadline(time.Now().Add(DrainLimit))
	}
	l.said.Wait()
}

// hungUp reports whether the other end of a pipe is closed.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}
