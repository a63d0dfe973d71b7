package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/hvd"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// worker is a rank of the Go job: it carries out the conductor's orders.
type worker struct {
	rank, size int
	dir        string                // of the control socket
	large      []float32             // the tensor of every allreduce, up to its size
	lists      map[string]*operation // by mode and sizes
	sum        []hvd.Option
	machine
}

// work is the program of a rank: it connects to the control socket args[0] and obeys until the conductor hangs up.
// args[1] is the length of the longest tensor, in floats.
func work(args []string) error {
	if len(args) != 2 {
		return errors.New("a worker is started by bench itself")
	}
	floats, err := strconv.Atoi(args[1])
	if err != nil || floats < 1 {
		return fmt.Errorf("%q is no number of floats", args[1])
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	w := &worker{rank: hvd.Rank(), size: hvd.Size(), dir: filepath.Dir(args[0]), large: make([]float32, floats),
		lists: map[string]*operation{}, sum: []hvd.Option{hvd.WithOp(hvd.Sum)}}
	for i := range w.large { // touches every page
		w.large[i] = 0
	}
	defer w.machine.close()
	if _, err := fmt.Fprintf(conn, "hello %d\n", w.rank); err != nil {
		return err
	}
	return serve(conn, w.do)
}

// serve answers every order on conn until conn ends.
func serve(conn io.ReadWriter, do func(mode string, sizes []int, reps, inner int) ([]int64, error)) error {
	lines := bufio.NewReaderSize(conn, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var answer []byte
		mode, sizes, reps, inner, err := parseOrder(line)
		if err == nil {
			var times []int64
			if times, err = do(mode, sizes, reps, inner); err == nil {
				answer = append(answer, "ok"...)
				for _, t := range times {
					answer = strconv.AppendInt(append(answer, ' '), t, 10)
				}
			}
		}
		if err != nil {
			answer = append(answer, "error "+strings.ReplaceAll(err.Error(), "\n", " ")...)
		}
		if _, err := conn.Write(append(answer, '\n')); err != nil {
			return err
		}
	}
}

// parseOrder is the inverse of task.order.
func parseOrder(line string) (mode string, sizes []int, reps, inner int, err error) {
	words := strings.Fields(line)
	if len(words) != 5 || words[0] != "run" {
		return "", nil, 0, 0, fmt.Errorf("%.40q is no order", line)
	}
	for _, s := range strings.Split(words[2], ",") {
		n, e := strconv.Atoi(s)
		if e != nil || n < 1 {
			return "", nil, 0, 0, fmt.Errorf("%q is no size", s)
		}
		sizes = append(sizes, n)
	}
	reps, e1 := strconv.Atoi(words[3])
	inner, e2 := strconv.Atoi(words[4])
	if e1 != nil || e2 != nil || reps < 1 || inner < 1 {
		return "", nil, 0, 0, fmt.Errorf("%q: repetitions must be 1 or more", strings.Join(words[3:], " "))
	}
	return words[1], sizes, reps, inner, nil
}

// do runs one order and returns the nanoseconds of each repetition.
func (w *worker) do(mode string, sizes []int, reps, inner int) ([]int64, error) {
	step, err := w.step(mode, sizes)
	if err != nil {
		return nil, err
	}
	w.slept = 0
	times := make([]int64, reps)
	ctx := context.Background()
	for i := range times {
		if err := hvd.Barrier(ctx); err != nil {
			return nil, err
		}
		if mode == modeSubmit {
			if times[i], err = w.lists[listKey(mode, sizes)].submitting(); err != nil {
				return nil, err
			}
			continue
		}
		start := time.Now()
		for range inner {
			if err := step(); err != nil {
				return nil, err
			}
		}
		times[i] = int64(time.Since(start))
		if mode == modeWake {
			times[i] = w.slept // from the other rank's call to the time this one runs
		}
	}
	return times, nil
}

// step prepares everything that the work needs, checks once that its result is right, and returns the work.
func (w *worker) step(mode string, sizes []int) (func() error, error) {
	switch mode {
	case modeAdd:
		w.prepareAdd(sizes[0])
		return w.add, nil
	case modeWake:
		return w.wake, w.prepareWake(filepath.Join(w.dir, "wake"), w.rank)
	case modeTCP:
		w.bytes = sizes[0]
		return w.transfer, w.prepareTCP(w.rank)
	}
	o, err := w.operation(mode, sizes)
	if err != nil {
		return nil, err
	}
	return o.run, o.verify(w.rank, w.size)
}

// operation is a list of tensors, with everything that its repetition needs.
type operation struct {
	name    string
	names   []string
	tensors [][]float32
	handles []*hvd.Handle
	sum     []hvd.Option
	kept    [][]hvd.Option // the sum, and the tensor's handle
	run     func() error
}

func (w *worker) operation(mode string, sizes []int) (*operation, error) {
	key := listKey(mode, sizes)
	if o := w.lists[key]; o != nil {
		return o, nil
	}
	o := &operation{name: "bench." + mode + "." + strconv.Itoa(len(w.lists)), sum: w.sum}
	for i, n := range sizes {
		o.names = append(o.names, o.name+"."+strconv.Itoa(i))
		h := new(hvd.Handle)
		o.handles = append(o.handles, h)
		o.kept = append(o.kept, append(slices.Clone(w.sum), hvd.WithHandle(h)))
		if mode == modeAllreduce {
			if n > len(w.large) {
				return nil, fmt.Errorf("%d floats: %d were announced", n, len(w.large))
			}
			o.tensors = append(o.tensors, w.large[:n])
		} else {
			o.tensors = append(o.tensors, make([]float32, n))
		}
	}
	switch mode {
	case modeAllreduce:
		o.run = o.allreduce
	case modeAsync, modeSubmit:
		o.run = o.async
	case modeGrouped:
		o.run = o.grouped
	default:
		return nil, fmt.Errorf("%q is no mode", mode)
	}
	w.lists[key] = o
	return o, nil
}

func (o *operation) allreduce() error {
	return hvd.Allreduce(context.Background(), o.name, o.tensors[0], o.sum...)
}

// listKey is the key under which a worker keeps an operation.
func listKey(mode string, sizes []int) string { return fmt.Sprint(mode, sizes) }

func (o *operation) async() error {
	_, err := o.submitting()
	return err
}

// submitting is async, and returns how many nanoseconds the submitting calls took.
func (o *operation) submitting() (int64, error) {
	start := time.Now()
	for i, t := range o.tensors {
		if _, err := hvd.AllreduceAsync(o.names[i], t, o.kept[i]...); err != nil {
			return 0, err
		}
	}
	took := int64(time.Since(start))
	for _, h := range o.handles {
		if err := h.Wait(context.Background()); err != nil {
			return 0, err
		}
	}
	return took, nil
}

func (o *operation) grouped() error {
	return hvd.GroupedAllreduce(context.Background(), o.name, o.tensors, o.sum...)
}

// verify runs the operation once on numbers whose sum is known, in the first and last element of each tensor. It leaves
// zeros, because sums of zeros stay zero however often they are taken.
func (o *operation) verify(rank, size int) error {
	for _, t := range o.tensors {
		t[0], t[len(t)-1] = float32(rank+1), float32(rank+1)
	}
	if err := o.run(); err != nil {
		return err
	}
	want := float32(size * (size + 1) / 2)
	for i, t := range o.tensors {
		if t[0] != want || t[len(t)-1] != want {
			return fmt.Errorf("tensor %d of %s begins with %v and ends with %v; the sum is %v", i, o.name, t[0],
				t[len(t)-1], want)
		}
		t[0], t[len(t)-1] = 0, 0
	}
	return nil
}

// machine has what a worker needs to measure the machine.
type machine struct {
	dst  []byte
	srcs [2][]byte

	alarm *alarm
	slept int64 // nanoseconds that the last wake-up took; 0 except on rank 1
	rank  int

	bytes  int
	buffer []byte
	conn   net.Conn // between ranks 0 and 1
}

// prepareAdd allocates the arrays, and touches every page.
func (m *machine) prepareAdd(n int) {
	if len(m.dst) == n {
		return
	}
	arrays := [2][]float32{make([]float32, n/4), make([]float32, n/4)}
	for i, a := range arrays {
		for j := range a {
			a[j] = 0
		}
		m.srcs[i] = unsafe.Slice((*byte)(unsafe.Pointer(&a[0])), n)
	}
	m.dst = m.srcs[0]
}

// add moves three times the length of an array: it reads two and writes one. It returns when all ranks are done, so
// that the time of the rank that began first covers the work of all ranks, even if they did not run in parallel.
func (m *machine) add() error {
	reduce.Reduce(tensor.Float32, tensor.Sum, m.dst, m.srcs[:], 1)
	return hvd.Barrier(context.Background())
}

func (m *machine) prepareWake(path string, rank int) (err error) {
	m.rank = rank
	if m.alarm == nil && rank < 2 {
		m.alarm, err = newAlarm(path)
	}
	return err
}

// wake lets rank 0 wake rank 1.
func (m *machine) wake() (err error) {
	switch m.rank {
	case 0:
		err = m.alarm.ring()
	case 1:
		m.slept, err = m.alarm.sleep()
	}
	return err
}

const (
	tcpChunk = 256 << 10
	tcpLimit = 30 * time.Second
)

// prepareTCP connects ranks 0 and 1. All ranks call it.
func (m *machine) prepareTCP(rank int) error {
	if m.buffer != nil {
		return nil
	}
	m.buffer, m.rank = make([]byte, tcpChunk), rank
	var listener net.Listener
	var err error
	port := []int32{0} // it stays 0 if rank 0 cannot listen
	if rank == 0 {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
			defer listener.Close()
			port[0] = int32(listener.Addr().(*net.TCPAddr).Port)
		}
	}
	if e := hvd.Broadcast(context.Background(), "bench.port", port, 0); err == nil {
		err = e
	}
	switch {
	case err != nil:
	case rank == 0:
		listener.(*net.TCPListener).SetDeadline(time.Now().Add(tcpLimit))
		m.conn, err = listener.Accept()
	case rank == 1 && port[0] == 0:
		err = errors.New("rank 0 does not listen")
	case rank == 1:
		m.conn, err = net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port[0]), tcpLimit)
	}
	return err
}

// transfer sends bytes from rank 0 to rank 1, which returns one byte.
func (m *machine) transfer() error {
	if m.rank > 1 {
		return nil
	}
	m.conn.SetDeadline(time.Now().Add(tcpLimit))
	for left := m.bytes; left > 0; {
		part := m.buffer[:min(left, len(m.buffer))]
		move := m.conn.Read
		if m.rank == 0 {
			move = m.conn.Write
		}
		n, err := move(part)
		if err != nil {
			return err
		}
		left -= n
	}
	var err error
	if m.rank == 0 {
		_, err = m.conn.Read(m.buffer[:1])
	} else {
		_, err = m.conn.Write(m.buffer[:1])
	}
	return err
}

func (m *machine) close() {
	if m.conn != nil {
		m.conn.Close()
	}
}
