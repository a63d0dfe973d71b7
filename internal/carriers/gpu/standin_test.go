//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
	standin "github.com/gorovod/gorovod/test/gpu"
)

// These tests run whole programs on the stand-in for CUDA and NCCL, with a process for each member. The stand-in ends a
// process that breaks the rules of a real GPU.

// member is one process of these tests.
type member struct {
	rank, size int
	driver     *cuda.Driver
	library    *nccl.Library
	context    *cuda.Context
	stream     cuda.Stream
	comm       *nccl.Comm
}

// programs are the programs of a member, by name.
var programs = map[string]func(m *member) error{
	"collectives": collectives,
	"failing":     failing,
	"hanging":     hanging,
	"splitting":   splitting,
	"shrinking":   shrinking,
	"memory":      memory,
}

// runProgram is the main function of a member.
func runProgram(name string) {
	m := &member{}
	fmt.Sscan(os.Getenv("GPU_TEST_MEMBER"), &m.rank, &m.size)
	err := m.join()
	if err == nil {
		err = programs[name](m)
	}
	if err == nil {
		err = m.leave()
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func (m *member) join() (err error) {
	if m.driver, m.library, err = Find(); err != nil {
		return err
	}
	if m.context, err = m.driver.Context(m.rank); err != nil {
		return err
	}
	if m.stream, err = m.context.NewStream(); err != nil {
		return err
	}
	id, err := m.id()
	if err != nil {
		return err
	}
	if m.comm, err = m.library.NewComm(m.context, m.size, id, m.rank); err != nil {
		return err
	}
	return ready(m.comm)
}

// id returns the communicator's name, which member 0 makes and hands to the others in a file.
func (m *member) id() (id nccl.UniqueID, err error) {
	file := filepath.Join(os.Getenv("STANDIN_MEETING"), "id")
	if m.rank == 0 {
		if id, err = m.library.NewUniqueID(); err != nil {
			return id, err
		}
		if err := os.WriteFile(file+"-", id[:], 0o600); err != nil {
			return id, err
		}
		return id, os.Rename(file+"-", file)
	}
	for {
		if text, err := os.ReadFile(file); err == nil {
			return nccl.UniqueID(text), nil
		}
		time.Sleep(time.Millisecond)
	}
}

func ready(c *nccl.Comm) error {
	for {
		if is, err := c.Ready(); is || err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (m *member) leave() error {
	if m.comm != nil {
		if err := end(m.comm); err != nil {
			return err
		}
	}
	return m.context.FreeStream(m.stream)
}

func end(c *nccl.Comm) error {
	if err := c.Finalize(); err != nil {
		return err
	}
	if err := ready(c); err != nil {
		return err
	}
	return c.Destroy()
}

// run puts a program into its stream, and waits for its end.
func (m *member) run(c *nccl.Comm, p *nccl.Program) error {
	for {
		if issued, err := c.Advance(p); issued || err != nil {
			if err == nil {
				err = m.context.Synchronize(p.Stream)
			}
			return err
		}
	}
}

// numbers are float32s on the device and on the host.
type numbers struct {
	at   cuda.Address
	host []float32
	m    *member
}

func (m *member) numbers(values ...float32) (*numbers, error) {
	n := &numbers{m: m}
	p, err := m.context.AllocHost(4 * len(values))
	if err != nil {
		return nil, err
	}
	n.host = unsafe.Slice((*float32)(p), len(values))
	copy(n.host, values)
	if n.at, err = m.context.Alloc(4 * len(values)); err != nil {
		return nil, err
	}
	return n, m.context.CopyFromHost(n.at, p, 4*len(values), m.stream)
}

// take fetches the numbers, frees them, and compares them.
func (n *numbers) take(want ...float32) error {
	c, p := n.m.context, unsafe.Pointer(&n.host[0])
	if err := errors.Join(c.CopyToHost(p, n.at, 4*len(n.host), n.m.stream), c.Synchronize(n.m.stream)); err != nil {
		return err
	}
	got := fmt.Sprint(n.host)
	if err := errors.Join(c.FreeHost(p), c.Free(n.at)); err != nil {
		return err
	}
	if got != fmt.Sprint(want) {
		return fmt.Errorf("%s, not %v", got, want)
	}
	return nil
}

// All kinds of steps, on two streams, by two members.
func collectives(m *member) error {
	r := float32(m.rank)
	sums, err := m.numbers(r, r+1, 5)
	if err != nil {
		return err
	}
	gathered, err := m.numbers(0, 0)
	if err != nil {
		return err
	}
	sent, err := m.numbers(10+r, -1)
	if err != nil {
		return err
	}
	made, err := m.context.NewEvent()
	if err != nil {
		return err
	}
	done, err := m.context.NewEvent()
	if err != nil {
		return err
	}
	own, err := m.context.NewStream()
	if err != nil {
		return err
	}
	half, err := m.comm.NewScaledSum(nccl.Float32, []byte{0, 0, 0, 0x3f})
	if err != nil {
		return err
	}
	var p nccl.Program
	for range 20 {
		if err := m.context.Record(made, m.stream); err != nil {
			return err
		}
		p.Reset(own)
		p.Wait(made)
		p.GroupStart()
		p.AllReduce(uintptr(sums.at), uintptr(sums.at), 2, nccl.Float32, half)
		p.AllGather(uintptr(gathered.at), uintptr(sums.at)+8, 1, nccl.Float32)
		p.GroupEnd()
		p.GroupStart()
		p.Send(uintptr(sent.at), 1, nccl.Float32, 1-m.rank)
		p.Recv(uintptr(sent.at)+4, 1, nccl.Float32, 1-m.rank)
		p.GroupEnd()
		p.Zero(uintptr(sums.at)+8, 4)
		p.Copy(uintptr(sums.at)+8, uintptr(gathered.at), 4)
		p.Broadcast(uintptr(sums.at), uintptr(sums.at), 2, nccl.Float32, 1)
		p.Record(done)
		if err := m.run(m.comm, &p); err != nil {
			return err
		}
		for reached := false; !reached; { // the stand-in may answer late
			if reached, err = m.context.Reached(done); err != nil {
				return err
			}
		}
		if err := m.context.Wait(m.stream, done); err != nil {
			return err
		}
	}
	if err := m.comm.FreeScaledSum(half); err != nil {
		return err
	}
	// the mean of both members, which the later rounds do not change
	if err := errors.Join(sums.take(0.5, 1.5, 5), gathered.take(5, 5), sent.take(10+r, 11-r)); err != nil {
		return err
	}
	return errors.Join(m.context.FreeStream(own), m.context.FreeEvent(made), m.context.FreeEvent(done))
}

// A call within a group fails, and no group stays open on the thread. Then the communicator is aborted.
func failing(m *member) error {
	runtime.LockOSThread()
	n, err := m.numbers(1, 2)
	if err != nil {
		return err
	}
	var p nccl.Program
	p.Reset(m.stream)
	p.GroupStart()
	p.AllReduce(uintptr(n.at), uintptr(n.at), 1, nccl.Float32, nccl.Sum)
	p.AllReduce(uintptr(n.at)+4, uintptr(n.at)+4, 1, nccl.Float32, nccl.Sum)
	p.GroupEnd()
	_, err = m.comm.Advance(&p)
	var failure *nccl.Error
	if !errors.As(err, &failure) || failure.Call != "ncclAllReduce" || failure.Code != nccl.InternalError {
		return fmt.Errorf("not ncclAllReduce has failed, but: %w", err)
	}
	if err := ready(m.comm); err != nil {
		return err
	}
	p.Reset(m.stream)
	p.AllReduce(uintptr(n.at)+4, uintptr(n.at), 1, nccl.Float32, nccl.Sum)
	if err := m.run(m.comm, &p); err != nil {
		return err
	}
	if err := m.comm.Abort(); err != nil {
		return err
	}
	if _, err := m.comm.Advance(&p); !errors.Is(err, nccl.ErrAborted) {
		return fmt.Errorf("after Abort: %w", err)
	}
	m.comm = nil
	return n.take(1, 1)
}

// A call hangs, and Abort ends the communicator meanwhile.
func hanging(m *member) error {
	n, err := m.numbers(1)
	if err != nil {
		return err
	}
	hung := make(chan struct{})
	go func() {
		var p nccl.Program
		p.Reset(m.stream)
		p.AllReduce(uintptr(n.at), uintptr(n.at), 1, nccl.Float32, nccl.Sum)
		_, _ = m.comm.Advance(&p)
		close(hung)
	}()
	time.Sleep(20 * time.Millisecond)
	aborted := make(chan error)
	go func() { aborted <- m.comm.Abort() }()
	if err := <-aborted; err != nil {
		return err
	}
	fmt.Println("aborted")
	os.Exit(0) // leave would end the aborted communicator again
	return nil
}

func (m *member) sum(c *nccl.Comm, value, want float32) error {
	n, err := m.numbers(value)
	if err != nil {
		return err
	}
	var p nccl.Program
	p.Reset(m.stream)
	p.AllReduce(uintptr(n.at), uintptr(n.at), 1, nccl.Float32, nccl.Sum)
	if err := m.run(c, &p); err != nil {
		return err
	}
	return n.take(want)
}

// Members 0 and 2 have a communicator of their own.
func splitting(m *member) error {
	color := -1 + (m.rank+1)%2
	part, err := m.comm.Split(color, m.rank)
	if err != nil {
		return err
	}
	if err := ready(m.comm); err != nil {
		return err
	}
	if (part == nil) != (m.rank == 1) {
		return fmt.Errorf("member %d has %v", m.rank, part)
	}
	if part == nil {
		return nil
	}
	if err := ready(part); err != nil {
		return err
	}
	return errors.Join(m.sum(part, float32(m.rank)+1, 4), end(part))
}

// Member 1 leaves, and the others go on.
func shrinking(m *member) error {
	if m.rank == 1 {
		err := m.comm.Abort()
		m.comm = nil
		return err
	}
	rest, err := m.comm.Shrink([]int{1}, true)
	if err != nil {
		return err
	}
	if err := ready(rest); err != nil {
		return err
	}
	if err := errors.Join(m.sum(rest, float32(m.rank)+1, 4), m.comm.Abort()); err != nil {
		return err
	}
	m.comm = rest
	return nil
}

func memory(m *member) error {
	if _, err := m.context.Alloc(1 << 30); !errors.Is(err, cuda.ErrOutOfMemory) {
		return fmt.Errorf("a GiB of a MB: %w", err)
	}
	a, err := m.context.Alloc(100)
	if err != nil {
		return err
	}
	var host int
	for address, want := range map[uintptr]int{uintptr(a): m.rank, uintptr(unsafe.Pointer(&host)): -1} {
		if device, err := m.driver.DeviceOf(address); err != nil || device != want {
			return fmt.Errorf("the device of %#x is %d, not %d: %w", address, device, want, err)
		}
	}
	if capturing, err := m.context.Capturing(m.stream); err != nil || capturing {
		return fmt.Errorf("captured: %t, %w", capturing, err)
	}
	if _, err := m.driver.Context(99); err == nil || !strings.Contains(err.Error(), "no CUDA device 99") {
		return fmt.Errorf("device 99: %w", err)
	}
	return m.context.Free(a)
}

func TestPrograms(t *testing.T) {
	libraries := t.TempDir()
	if err := standin.Build("../../../test/gpu/standin", libraries); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program string
		size    int
		env     []string
		says    string
	}{
		{"collectives", 2, nil, "done"},
		{"failing", 1, []string{"STANDIN_FAULTS=ncclAllReduce:2:3"}, "done"},
		{"hanging", 1, []string{"STANDIN_FAULTS=ncclAllReduce:1:hang", "STANDIN_LEAKS=0"}, "aborted"},
		{"splitting", 3, nil, "done"},
		{"shrinking", 3, nil, "done"},
		{"memory", 2, []string{"STANDIN_MEMORY=1000000"}, "done"},
	} {
		t.Run(c.program, func(t *testing.T) {
			meeting := t.TempDir()
			ends := make(chan string)
			for rank := range c.size {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(append(os.Environ(), asked+"="+c.program, "LD_LIBRARY_PATH="+libraries,
					"STANDIN_LEAKS=1", "STANDIN_MEETING="+meeting,
					fmt.Sprintf("GPU_TEST_MEMBER=%d %d", rank, c.size)), c.env...)
				go func() {
					timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
					out, err := cmd.CombinedOutput()
					timer.Stop()
					if err != nil || !strings.HasPrefix(string(out), c.says) {
						ends <- fmt.Sprintf("member %d: %v\n%s", rank, err, out)
					}
					ends <- ""
				}()
			}
			for left := c.size; left > 0; {
				if said := <-ends; said != "" {
					t.Error(said)
				} else {
					left--
				}
			}
		})
	}
}
