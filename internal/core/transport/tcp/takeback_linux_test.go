package tcp

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connsOf are a network's connections.
func connsOf(n *Network) []*conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connsLocked(func(*conn) bool { return true })
}

// The goroutine to which the connection returns completes a message that the driver has begun to write, and writes the
// parts that are posted later.
func TestTakenBackWhileWriting(t *testing.T) {
	networks := quiet(t, 2)
	lanes := openAll(t, networks, 0)
	out := &networks[0].lanes[0].dataOut[1].streams[0]
	p := pattern(tooMuch, 1)
	lanes[0].Comm.Send(1, p)
	written := func() int {
		out.mu.Lock()
		defer out.mu.Unlock()
		return out.written
	}
	eventually(t, func() bool { lanes[0].Comm.Sent(1); return written() > 0 })
	for _, c := range connsOf(networks[0]) {
		c.recall()
	}
	eventually(t, func() bool { return out.conn.Load().custody.is(held) })
	got := make([]byte, len(p))
	lanes[1].Comm.Recv(0, got)
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
	if !bytes.Equal(got, p) {
		t.Error("another message has come")
	}
	lanes[0].Comm.Send(1, p[:5])
	lanes[1].Comm.Recv(0, got[:5])
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	if !bytes.Equal(got[:5], p[:5]) {
		t.Errorf("the next message is %q", got[:5])
	}
}

// Frames stay whole and in order when their connection returns after any byte of a frame.
func TestTakenBackWithinAFrame(t *testing.T) {
	const payload = "the payload of a frame"
	for _, cut := range []int{0, 1, headerSize, headerSize + 1, headerSize + len(payload) - 1} {
		networks := quiet(t, 2)
		openAll(t, networks, 5)
		l := networks[1].lanes[5]
		r := record(l)
		in := &l.controlIn[0]
		c := dialAs(t, networks[0], 5, 1, control)
		c.Write(rawMessage(messageBoard, 0, 5, "first"))
		message := rawMessage(messageBoard, 1, uint64(len(payload)), payload)
		c.Write(message[:cut])
		filled := func() int {
			in.mu.Lock()
			defer in.mu.Unlock()
			return in.filled
		}
		eventually(t, func() bool { l.takeFrames(); return len(r.received()) == 1 && filled() == cut })
		in.lent().recall()
		if l.takeFrames(); in.lent() != nil {
			t.Fatal("the driver uses what has been recalled")
		}
		c.Write(message[cut:])
		c.Write(rawMessage(messageBoard, 2, 4, "last"))
		eventually(t, func() bool { return len(r.received()) == 3 })
		if got := string(slices.Concat(r.received()...)); got != "first"+payload+"last" {
			t.Errorf("cut at %d: %q", cut, got)
		}
		c.Write(rawMessage(messageLaneClosed, 3, 0, ""))
		networks[0].drop(c)
	}
}

// If the kernel cannot watch a connection, its goroutine keeps it.
func TestKeptWhereItCannotBeLent(t *testing.T) {
	networks := quiet(t, 2)
	networks[1].keeper.epoll.Close()
	lanes := openAll(t, networks, 0)
	for k := range 3 {
		p, got := pattern(100_000, byte(k)), make([]byte, 100_000)
		lanes[0].Comm.Send(1, p)
		lanes[1].Comm.Recv(0, got)
		until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
		until(t, networks[0], func() bool { return lanes[0].Comm.Sent(1) })
		if !bytes.Equal(got, p) {
			t.Fatalf("message %d is another one", k)
		}
	}
	if !networks[1].lanes[0].dataIn[0].streams[0].conn.Load().custody.is(held) {
		t.Error("the connection is not held")
	}
}

// A connection is no longer lent once an abort or Close may have found it held, and may be about to write the last word
// to it.
func TestNotLentOnceTheNetworkEnds(t *testing.T) {
	for name, end := range map[string]func(n *Network){
		"abort": func(n *Network) { n.Abort(errors.New("enough")) },
		"close": func(n *Network) { n.Close() },
	} {
		networks := world(t, 2, nil)
		openAll(t, networks, 0)
		c := dialAs(t, networks[0], 0, 1, data)
		end(networks[0])
		if c.lend() {
			t.Errorf("%s: a connection is lent", name)
			c.takeBack()
		}
		closeAll(networks)
	}
}

// A goroutine that needs a lent connection waits until the driver no longer uses it, and no longer.
func TestAWordOnALentConnection(t *testing.T) {
	networks := quiet(t, 2)
	openAll(t, networks, 5)
	in := &networks[1].lanes[5].dataIn[0].streams[0]
	out := dialAs(t, networks[0], 5, 1, data)
	eventually(t, func() bool { return in.lent() != nil })
	c := in.lent()
	in.mu.Lock() // like the driver during a system call
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(goodbye())
		wrote <- err
	}()
	eventually(t, func() bool { return !c.custody.is(lent) })
	select {
	case err := <-wrote:
		wrote <- err
		t.Error("written amid a system call of the driver")
	case <-time.After(20 * time.Millisecond):
	}
	in.mu.Unlock()
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	word := make([]byte, headerSize)
	if _, err := out.Read(word); err != nil || !bytes.Equal(word, goodbye()) {
		t.Errorf("%v came, %v", word, err)
	}
	out.Write(rawMessage(messageLaneClosed, 0, 0, ""))
	networks[0].drop(out)
}

// noDescriptors lets the process open no more descriptors until restore is called.
func noDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	return func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }
}

// A connection returns to Go's runtime also if the process can open no more descriptors: the data of a rank that has
// left arrives.
func TestTakenBackWithoutDescriptors(t *testing.T) {
	networks := quiet(t, 2)
	lanes := openAll(t, networks, 5)
	in := &networks[1].lanes[5].dataIn[0].streams[0]
	c := dialAs(t, networks[0], 5, 1, data)
	eventually(t, func() bool { return in.lent() != nil })
	defer noDescriptors(t)()
	got := make([]byte, 100)
	lanes[1].Comm.Recv(0, got)
	c.Write(rawMessage(messageData, 0, 100, string(pattern(100, 3))))
	c.Write(rawMessage(messageLaneClosed, 1, 0, ""))
	c.CloseWrite()
	<-in.conn.Load().back
	until(t, networks[1], func() bool { return lanes[1].Comm.Received(0) })
	if !bytes.Equal(got, pattern(100, 3)) {
		t.Error("another message has come")
	}
	networks[0].drop(c)
}

// A connection that cannot return to Go's runtime is lost. That is an error on all ranks, and no wait.
func TestTheWayBackIsBarred(t *testing.T) {
	networks := world(t, 2, func(_ int, c *Config) { c.Grace = time.Millisecond })
	lanes := openAll(t, networks, 0)
	lanes[1].Comm.Recv(0, make([]byte, 100))
	c := dialAs(t, networks[0], 0, 1, data)
	in := &networks[1].lanes[0].dataIn[0].streams[0]
	eventually(t, func() bool { return in.lent() != nil })
	barTheWayBack(t, in)
	if err := untilErr(t, networks[1]); !strings.Contains(err.Error(), "does not take the connection: file type") {
		t.Error(err)
	}
	if _, err := in.conn.Load().Write(nil); err == nil {
		t.Error("the connection can be written")
	}
	in.conn.Load().Close()
	networks[0].drop(c)
}

// barTheWayBack replaces a lent connection by a file that Go's poller does not take, and recalls it.
func barTheWayBack(t *testing.T, in *inStream) {
	t.Helper()
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := in.lent()
	in.mu.Lock()
	err = unix.Dup3(int(file.Fd()), c.fd, unix.O_CLOEXEC)
	in.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c.recall()
	<-c.back
}

// A connection is lost, and then its rank leaves in good order. A receive that still waits there is an error.
func TestLostBeforeTheGoodbye(t *testing.T) {
	for _, id := range []int{0, 5} {
		networks := world(t, 2, func(_ int, c *Config) { c.Grace = 50 * time.Millisecond })
		lanes := openAll(t, networks, 0)
		if id != 0 {
			lanes = openAll(t, networks, id)
		}
		lanes[1].Comm.Recv(0, make([]byte, 100))
		c := dialAs(t, networks[0], id, 1, data)
		in := &networks[1].lanes[id].dataIn[0].streams[0]
		eventually(t, func() bool { return in.lent() != nil })
		networks[1].lanes[id].board.Close() // the log has ended in good order, too
		barTheWayBack(t, in)
		networks[1].peers[0].left.Store(true)
		if err := untilErr(t, networks[1]); !strings.Contains(err.Error(),
			"rank 0 has closed its network; rank 1 waits") {
			t.Error(err)
		}
		networks[0].drop(c)
	}
}
