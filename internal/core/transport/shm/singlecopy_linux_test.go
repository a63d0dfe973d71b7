package shm

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

func span(p []byte) []transport.Span {
	return []transport.Span{{Addr: uintptr(unsafe.Pointer(&p[0])), Bytes: uintptr(len(p))}}
}

func TestSingleCopy(t *testing.T) {
	nets := openWorld(t, 3, nil)
	lanes := openLanes(t, nets, 0, []int{0, 1, 2})
	single := lanes[1].Shared.(transport.SingleCopy)
	if !single.CanCopy() {
		t.Fatal("ranks of one process do not copy one another's memory")
	}
	here, there := []byte("here it is"), []byte("there it was")
	if !single.Push(2, span(there[:10]), span(here)) || string(there) != "here it isas" {
		t.Errorf("pushed: %q", there)
	}
	if !single.Pull(2, span(here[2:4]), span(there[10:])) || string(here) != "heas it is" {
		t.Errorf("pulled: %q", here)
	}
	nets[2].token[0]++ // as if its process were another one now
	if single.CanCopy() || !lanes[2].Shared.(transport.SingleCopy).CanCopy() {
		t.Error("what has become of a rank is not noticed")
	}
	nets[2].token[0]--
	if single.CanCopy() {
		t.Error("memory that could not be copied can be again")
	}
	single = lanes[0].Shared.(transport.SingleCopy)
	single.CanCopy()
	hole, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(hole)
	bad := transport.Span{Addr: uintptr(unsafe.Pointer(unsafe.SliceData(hole))), Bytes: 1}
	if list := append(bytesOf(here, 200), bad); !single.Copyable(list[:200]) || single.Copyable(list) {
		t.Error("memory that cannot be copied is not told from memory that can")
	}
	runtime.KeepAlive(there)
}

// bytesOf are n spans of p's first byte.
func bytesOf(p []byte, n int) (list []transport.Span) {
	for range n {
		list = append(list, span(p[:1])...)
	}
	return list
}

// A rank with Config.Staged neither copies nor is copied from. Ranks of which more than two share a core do not copy
// either.
func TestSingleCopyIsRefused(t *testing.T) {
	for why, change := range map[string]func(c *Config){
		"one is staged":  func(c *Config) { c.Staged = c.Rank == 1 },
		"they are three": func(c *Config) { c.Cores = 1 },
	} {
		nets := openWorld(t, 3, change)
		for m, l := range openLanes(t, nets, 0, []int{0, 1, 2}) {
			if l.Shared.(transport.SingleCopy).CanCopy() || nets[m].CanCopy() {
				t.Errorf("%s, and member %d can copy from all others", why, m)
			}
		}
	}
}

// If the kernel refuses to copy, the job aborts with an error that names both ends.
func TestSingleCopyOfMemoryThatIsGone(t *testing.T) {
	nets := openWorld(t, 2, nil)
	single := openLanes(t, nets, 0, []int{0, 1})[0].Shared.(transport.SingleCopy)
	here := make([]byte, 8)
	if single.Push(1, []transport.Span{{Addr: 8, Bytes: 8}}, span(here)) {
		t.Error("bytes were written to nowhere")
	}
	for r, n := range nets {
		if err := n.Err(); err == nil || !strings.Contains(err.Error(),
			"rank 0 cannot write the memory of rank 1 (process "+strconv.Itoa(os.Getpid())+") any more: bad address: "+
				"its tensor is where one cannot write, or was freed") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Nobody writes to a rank that has closed, and Close does not return while another rank writes.
func TestCloseEndsSingleCopy(t *testing.T) {
	nets := openWorld(t, 2, nil)
	single := openLanes(t, nets, 0, []int{0, 1})[0].Shared.(transport.SingleCopy)
	here, there := []byte("new"), []byte("old")
	writing := &nets[0].head.copyState(0).writing
	writing.Store(1 + 1) // as Push does before it looks
	closed := make(chan error)
	go func() { closed <- nets[1].Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed while rank 0 wrote: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	writing.Store(0)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if single.Push(1, span(there), span(here)) || string(there) != "old" {
		t.Errorf("after Close: %q", there)
	}
	if err := nets[0].Err(); err != nil {
		t.Errorf("that is no reason to abort: %v", err)
	}
}

// A process that stops in the middle of a write is killed, and Close does not wait for a process that has ended.
func TestAWriterThatStops(t *testing.T) {
	p, n, lane := beside(t, "stuck", nil)
	if !lane.Shared.(transport.SingleCopy).CanCopy() {
		t.Error("ranks of two processes do not copy one another's memory")
	}
	told := make([]byte, 5)
	for lane.Shared.Counter(1, transport.In) == 0 {
		time.Sleep(time.Millisecond)
	}
	address := lane.Shared.Buffer(1, 0)
	theirs := []transport.Span{{Addr: *(*uintptr)(unsafe.Pointer(&address[0])), Bytes: 5}}
	if single := lane.Shared.(transport.SingleCopy); !single.Pull(1, span(told), theirs) || string(told) != "hello" {
		t.Errorf("pulled: %q", told)
	}
	lane.Shared.Advance(transport.In, 1)
	p.expect(t, "stuck")
	began := time.Now()
	err := n.Close()
	if err == nil || !strings.Contains(err.Error(),
		"rank 1 (process "+strconv.Itoa(p.Process.Pid)+") was stopped while it wrote to the memory of rank 0, and "+
			"has been killed") {
		t.Fatalf("Close: %v", err)
	}
	if d := time.Since(began); d > fenceLimit+5*time.Second {
		t.Errorf("it took %v", d)
	}
	if state, _ := p.Process.Wait(); state == nil || !strings.Contains(state.String(), "killed") {
		t.Errorf("the process: %v", state)
	}
	var taken [2]int // reuses the descriptor numbers of the watch
	if err := unix.Pipe(taken[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(taken[0])
	defer unix.Close(taken[1])
	began = time.Now()
	if err := n.Close(); err != nil || time.Since(began) > fenceLimit {
		t.Errorf("Close again: %v, after %v", err, time.Since(began))
	}
}

// Close does not wait for a rank that writes to the memory of another rank, and does not kill it.
func TestCloseSparesOtherWriters(t *testing.T) {
	nets := openWorld(t, 3, nil)
	writing := &nets[0].head.copyState(1).writing
	writing.Store(2 + 1)
	defer writing.Store(0)
	began := time.Now()
	if err := nets[0].Close(); err != nil || time.Since(began) >= fenceLimit {
		t.Errorf("Close: %v, after %v", err, time.Since(began))
	}
}

// A damaged process id in the segment makes nobody copy from another process's memory.
func TestSingleCopyKeepsToTheProcess(t *testing.T) {
	nets := openWorld(t, 2, nil)
	single := openLanes(t, nets, 0, []int{0, 1})[0].Shared.(transport.SingleCopy)
	nets[0].head.pid(1).Store(1 << 30)
	here, there := []byte("new"), []byte("old")
	if !single.Push(1, span(there), span(here)) || string(there) != "new" {
		t.Errorf("pushed: %q", there)
	}
}

// A process that keeps its id and runs another program is not taken for a process whose memory the kernel refuses to
// copy.
func TestSingleCopyOfAnotherProgram(t *testing.T) {
	nets := openWorld(t, 2, nil)
	single := openLanes(t, nets, 0, []int{0, 1})[0].Shared.(transport.SingleCopy)
	nets[1].token[0]++
	if single.Push(1, []transport.Span{{Addr: 8, Bytes: 8}}, span(make([]byte, 8))) {
		t.Error("bytes were written to nowhere")
	}
	if err := nets[1].Err(); err == nil || !strings.Contains(err.Error(),
		"rank 0 cannot write the memory of rank 1 (process "+strconv.Itoa(os.Getpid())+") any more: it has become "+
			"another program") {
		t.Errorf("%v", err)
	}
}

// stuck is the part of a rank that stops in the middle of a write.
func stuck(n *Network, lane *transport.Lane, say func(string)) {
	hello := bytes.Clone([]byte("hello"))
	*(*uintptr)(unsafe.Pointer(&lane.Shared.Buffer(1, 0)[0])) = uintptr(unsafe.Pointer(&hello[0]))
	lane.Shared.Advance(transport.In, 1)
	for lane.Shared.Counter(0, transport.In) == 0 {
		time.Sleep(time.Millisecond)
	}
	runtime.KeepAlive(hello)
	n.head.copyState(1).writing.Store(0 + 1)
	say("stuck")
	unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(time.Minute)
}

// All members agree on whether they share cores, though each may be bound to other cores.
func TestCrowdedIsAgreed(t *testing.T) {
	for _, cores := range [][3]int{{1, 1, 1}, {4, 4, 4}, {1, 2, 3}, {3, 2, 1}, {2, 0, 2}} {
		nets := openWorld(t, 3, func(c *Config) { c.Cores = cores[c.Rank] })
		var crowded [3]bool
		for m, l := range openLanes(t, nets, 0, []int{0, 1, 2}) {
			crowded[m] = l.Shared.(transport.SingleCopy).Crowded()
		}
		if crowded[1] != crowded[0] || crowded[2] != crowded[0] || cores[0] == cores[1] &&
			crowded[0] != (cores[0] == 1) {
			t.Errorf("%v cores: crowded %v", cores, crowded)
		}
	}
}
