//go:build linux

package shm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/core/transport"
)

// These tests run ranks as processes: the test binary starts itself, with the name of its role and its config in the
// environment.
const roleEnv = "SHM_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rankProcess is a started rank; read its lines from out.
type rankProcess struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func start(t testing.TB, role string, c Config) *rankProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role,
		fmt.Sprintf("SHM_TEST_CONFIG=%d %d %d %s", c.Rank, c.Size, c.Generation, c.Job))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end tells the child to go
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &rankProcess{cmd, in, bufio.NewScanner(out)}
}

func (p *rankProcess) expect(t testing.TB, want string) {
	t.Helper()
	if !p.out.Scan() || !strings.Contains(p.out.Text(), want) {
		t.Fatalf("process %d says %q (%v), want %q", p.Process.Pid, p.out.Text(), p.out.Err(), want)
	}
}

func play(role string) error {
	var c Config
	if _, err := fmt.Sscan(os.Getenv("SHM_TEST_CONFIG"), &c.Rank, &c.Size, &c.Generation, &c.Job); err != nil {
		return err
	}
	c.Key, c.Timeout, c.Cards = []byte("secret"), 20*time.Second, 64
	switch role {
	case "starve": // has no address space for the segment
		if err := starve(segmentBytes(c) / 2); err != nil {
			return err
		}
	case "hang": // takes the segment and does nothing
		conn, err := prove(context.Background(), c, hello{c.Rank, c.Size, os.Getpid()})
		if err == nil {
			_, err = receiveFDs(conn, 1)
		}
		if err != nil {
			return err
		}
		fmt.Println("granted")
		io.Copy(io.Discard, os.Stdin)
		return nil
	}
	died := make(chan string, c.Size)
	c.Died = func(rank, pid int, _ transport.Exit) { died <- fmt.Sprintf("died: rank %d", rank) }
	n, err := Open(context.Background(), c)
	if err != nil {
		return err
	}
	defer n.Close()
	members := make([]int, c.Size)
	for i := range members {
		members[i] = i
	}
	lane, err := n.OpenLane(0, 0, members)
	if err != nil {
		return err
	}
	switch role {
	case "pong":
		for k := uint64(1); ; k++ {
			for lane.Shared.Counter(0, transport.In) < k {
				if n.Err() != nil {
					return nil
				}
			}
			lane.Shared.Advance(transport.In, k)
		}
	case "stuck":
		stuck(n, lane, func(what string) { fmt.Println(what) })
	case "work":
		if err := work(n, lane); err != nil {
			return err
		}
		fmt.Println("worked")
		fmt.Println(<-died)
		if err := await(n, func() bool { return false }); err != nil {
			fmt.Println("aborted:", err)
		}
	case "lock": // dies holding the lane's lock
		for lane.Board.Next() == nil {
		}
		binary.LittleEndian.PutUint32(n.seg.mem[64:], uint32(c.Rank)+1)
		fmt.Println("locked")
	}
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// await drives a rank until cond holds, half the time asleep.
func await(n *Network, cond func() bool) error {
	for i := 0; ; i++ {
		if cond() {
			return nil
		}
		if err := n.Err(); err != nil {
			return err
		}
		if i%100 != 99 {
			runtime.Gosched()
			continue
		}
		ticket := n.Bell().Arm()
		if cond() { // call it only once, because it may have taken a batch
			n.Bell().Disarm()
			return nil
		}
		if n.Err() != nil {
			n.Bell().Disarm()
			continue
		}
		n.Bell().Sleep(ticket, time.Minute)
	}
}

const workRounds = 200

// work repeats an engine's work: it agrees on a step by the board, passes data through the staging buffers, and checks
// it.
func work(n *Network, lane *transport.Lane) error {
	b, s := lane.Board, lane.Shared
	if s.Rank() == 0 {
		c := lane.Coordination
		card, gen, ok := c.Acquire()
		if !ok || c.Publish(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, card), gen)) == 0 {
			return errors.New("no card")
		}
	}
	var batch []transport.Record
	next := func() bool { batch = b.Next(); return batch != nil }
	if err := await(n, next); err != nil {
		return err
	}
	card, gen := binary.BigEndian.Uint32(batch[0].Payload), binary.BigEndian.Uint32(batch[0].Payload[4:])
	for k := range uint64(workRounds) {
		if !b.Mark(card, gen) {
			return errors.New("stale")
		}
		if err := await(n, next); err != nil {
			return err
		}
		if len(batch) != 1 || batch[0].Card != card {
			return fmt.Errorf("step %d: batch %v", k, batch)
		}
		allPast := func(p transport.Phase, v uint64) func() bool {
			return func() bool {
				for m := range s.Size() {
					if s.Counter(m, p) < v {
						return false
					}
				}
				return true
			}
		}
		if k+1 > uint64(s.Depth()) {
			if err := await(n, allPast(transport.Out, k+1-uint64(s.Depth()))); err != nil {
				return err
			}
		}
		mine := s.Buffer(s.Rank(), k)
		copy(mine, bytes.Repeat([]byte{byte(s.Rank()), byte(k)}, 512))
		s.Advance(transport.In, k+1)
		if err := await(n, allPast(transport.In, k+1)); err != nil {
			return err
		}
		for m := range s.Size() {
			if p := s.Buffer(m, k)[:1024]; !bytes.Equal(p, bytes.Repeat([]byte{byte(m), byte(k)}, 512)) {
				return fmt.Errorf("step %d: member %d's data is damaged", k, m)
			}
		}
		s.Advance(transport.Out, k+1)
	}
	return nil
}

// beside starts rank 1 of two as a process, and attaches this process as rank 0.
func beside(t testing.TB, role string, died func(rank, pid int, exit transport.Exit)) (
	*rankProcess, *Network, *transport.Lane) {
	t.Helper()
	generation.Add(1)
	c := testConfig(t, 0, 2)
	c.Job, c.Died = strconv.Itoa(os.Getpid()), died
	pc := c
	pc.Rank = 1
	p := start(t, role, pc)
	n, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	lane, err := n.OpenLane(0, 0, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	return p, n, lane
}

func TestProcesses(t *testing.T) {
	generation.Add(1)
	c := testConfig(t, 0, 3)
	c.Job = strconv.Itoa(os.Getpid())
	type death struct{ rank, pid int }
	died := make(chan death, 3)
	c.Died = func(rank, pid int, _ transport.Exit) { died <- death{rank, pid} }
	var procs [3]*rankProcess
	for r := 1; r < 3; r++ {
		pc := c
		pc.Rank = r
		procs[r] = start(t, "work", pc)
	}
	n, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	lane, err := n.OpenLane(0, 0, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := work(n, lane); err != nil {
		t.Fatal(err)
	}
	procs[1].expect(t, "worked")
	procs[2].expect(t, "worked")

	procs[2].Process.Kill()
	if d := <-died; d != (death{2, procs[2].Process.Pid}) {
		t.Fatalf("reported dead: %+v, want rank 2, process %d", d, procs[2].Process.Pid)
	}
	procs[1].expect(t, "died: rank 2")
	if n.Err() != nil {
		t.Fatalf("the network aborted itself: %v", n.Err())
	}
	n.Abort(errors.New("rank 2 was killed by signal 9"))
	procs[1].expect(t, "aborted: rank 2 was killed by signal 9 (reported by rank 0)")
	procs[1].in.Close()
	if d := <-died; d.rank != 1 {
		t.Fatalf("reported dead: %+v, want rank 1", d)
	}
}

func TestTheKernelTellsHowAProcessHasEnded(t *testing.T) {
	died := make(chan syscall.WaitStatus, 1)
	p, _, _ := beside(t, "work", func(_, _ int, exit transport.Exit) {
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if status, known := exit(); known {
				died <- status
				return
			}
		}
		close(died)
	})
	p.Process.Kill()
	p.Wait()
	status, known := <-died
	if !known {
		var kernel unix.Utsname
		unix.Uname(&kernel)
		t.Skipf("Linux %s does not tell; 6.15 and later do", unix.ByteSliceToString(kernel.Release[:]))
	}
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("told %v, want SIGKILL", status)
	}
}

func TestDeathInsideTheLockEndsInAnError(t *testing.T) {
	died := make(chan int, 1)
	p, n, lane := beside(t, "lock", func(rank, _ int, _ transport.Exit) { died <- rank })
	lane.Coordination.Publish([]byte("go"))
	p.expect(t, "locked")
	p.Process.Kill()
	go func() { n.Abort(fmt.Errorf("rank %d died", <-died)) }()
	lane.Coordination.Publish([]byte("blocked")) // waits for the dead holder until the abort
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "rank 1 died") {
		t.Errorf("error %v", err)
	}
}

func TestHeadersAreUnmapped(t *testing.T) {
	generation.Add(1)
	func() {
		n, err := Open(t.Context(), testConfig(t, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
	}()
	mapped := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(maps, []byte("memfd:gorovod"))
	}
	for deadline := time.Now().Add(10 * time.Second); mapped() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d mappings are left", mapped())
		}
		runtime.GC()
	}
}

// BenchmarkPingPong measures a round trip of Advance and Counter between two
// spinning processes.
func BenchmarkPingPong(b *testing.B) {
	_, n, lane := beside(b, "pong", nil)
	k := uint64(0)
	for b.Loop() {
		k++
		lane.Shared.Advance(transport.In, k)
		for lane.Shared.Counter(1, transport.In) < k {
		}
	}
	n.Abort(errors.New("measured"))
}
