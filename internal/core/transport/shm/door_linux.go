package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/guard"
)

// host attaches rank 0. Rank 0 listens before it makes the segment, so that it can tell the others if it fails to make
// it.
func (n *Network) host(ctx context.Context) error {
	if n.cfg.Size == 1 {
		return n.create()
	}
	d, err := n.listen()
	if err != nil {
		return err
	}
	defer d.close()
	if err := n.create(); err != nil {
		d.fail(asFailure(n.cfg.world(0), err))
	} else {
		close(d.made)
	}
	return d.await(ctx)
}

// create makes and maps the segment.
func (n *Network) create() error {
	fd, err := createSegment(n.cfg)
	if err != nil {
		return err
	}
	fds := []int{fd}
	if n.cfg.Alarm {
		bells, err := createEvents(n.cfg.Size)
		if err != nil {
			unix.Close(fd)
			return err
		}
		fds = append(fds, bells...)
	}
	return n.adopt(fds, func(h *header) error {
		h.format(n.cfg)
		h.pid(0).Store(int64(os.Getpid()))
		return nil
	})
}

// door hands the segment to the other ranks. It collects their failures, and tells all ranks the outcome.
type door struct {
	n    *Network
	ln   *net.UnixListener
	wg   sync.WaitGroup
	made chan struct{} // closed when there is a segment
	over chan struct{} // closed when the outcome is decided: all have attached, or none will
	told chan struct{} // closed when all other ranks have been told

	mu        sync.Mutex             // protects the fields below
	strangers map[*net.UnixConn]bool // connections that have proved nothing yet
	closed    bool
	refused   error // the last error of a stranger
	guests    []guestState
	decided   bool
	failure   *failure // valid once decided; nil: all have attached
}

// guestState is rank 0's knowledge of another rank. The list is by place; element 0 is not used.
type guestState struct {
	pid          int // 0: it has not connected
	mapped, told bool
}

func (n *Network) listen() (*door, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address(n.cfg), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	d := &door{n: n, ln: ln, made: make(chan struct{}), over: make(chan struct{}), told: make(chan struct{}),
		strangers: map[*net.UnixConn]bool{}, guests: make([]guestState, n.cfg.Size)}
	d.start(d.accept)
	return d, nil
}

// await returns when all ranks have attached. If none will, it returns when all know that, or when ctx has ended.
func (d *door) await(ctx context.Context) error {
	select {
	case <-d.over:
	case <-ctx.Done():
		d.fail(&failure{rank: d.n.cfg.world(0), text: d.missing(ctx.Err().Error()), cause: ctx.Err()})
	}
	f := d.outcome()
	if f == nil {
		return nil
	}
	select {
	case <-d.told:
	case <-ctx.Done(): // some have never connected
	}
	return f
}

// close ends the door's goroutines, after the outcome has been decided. It cuts off strangers, but a rank still hears
// the outcome.
func (d *door) close() {
	d.ln.Close()
	d.mu.Lock()
	d.closed = true
	for c := range d.strangers {
		c.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
}

// start runs f on a goroutine that close waits for. A panic of f is a failure to attach.
func (d *door) start(f func()) {
	guard.In(&d.wg, "the attaching to shared memory", func(err error) { d.fail(asFailure(d.n.cfg.world(0), err)) }, f)
}

func (d *door) accept() {
	for {
		conn, err := d.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example no more descriptors
			d.trouble(err)
			time.Sleep(dialPause)
			continue
		}
		if !d.enter(conn) {
			conn.Close()
			return
		}
		d.start(func() { d.serve(conn) })
	}
}

func (d *door) enter(conn *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.strangers[conn] = true
	}
	return !d.closed
}

func (d *door) trouble(err error) {
	d.mu.Lock()
	d.refused = err
	d.mu.Unlock()
}

// serve sees one connection to its end.
func (d *door) serve(conn *net.UnixConn) {
	defer conn.Close()
	h, pid, err := d.identify(conn)
	d.mu.Lock()
	delete(d.strangers, conn)
	d.mu.Unlock()
	if err != nil {
		d.trouble(err)
		return
	}
	// The other end knows the secret, so it is a rank of this job. If this rank must refuse it, the world can never be
	// complete.
	var refusal *failure
	if err := d.register(h, pid); err != nil {
		refusal = asFailure(d.n.cfg.world(0), fmt.Errorf("process %d can't attach: %w", pid, err))
		d.fail(refusal)
	} else {
		d.start(func() { d.hear(conn, h.rank, pid) })
		d.grant(conn, h.rank, pid)
	}
	<-d.over
	f := d.outcome()
	if f == nil {
		f = refusal
	}
	word := []byte{statusAttached}
	if f != nil {
		word = f.message(statusFailed)
	}
	conn.SetWriteDeadline(time.Now().Add(farewell))
	conn.Write(word) // fails if the rank has gone
	d.tell(h.rank)
}

// identify returns the rank at the other end, once that rank has proved that it knows the secret.
func (d *door) identify(conn *net.UnixConn) (h hello, pid int, err error) {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	defer conn.SetDeadline(time.Time{})
	pid, err = peer(conn)
	if err != nil {
		return hello{}, 0, err
	}
	p, err := auth.Accept(conn, proofKey(d.n.cfg))
	if err == nil {
		h, err = decodeHello(p)
	}
	if err != nil {
		return hello{}, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return h, pid, nil
}

// register notes that a rank has connected, or returns the reason to refuse it.
func (d *door) register(h hello, pid int) error {
	c := d.n.cfg
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.size != c.Size:
		return fmt.Errorf("it counts %d ranks on this host, rank %d counts %d", h.size, c.world(0), c.Size)
	case h.rank < 1 || h.rank >= c.Size:
		return fmt.Errorf("it says that it is number %d of the %d ranks on this host", h.rank, c.Size)
	case h.pid != pid:
		return fmt.Errorf("rank %d says that its pid is %d: it lives in another pid namespace", c.world(h.rank), h.pid)
	case d.guests[h.rank].pid != 0:
		return fmt.Errorf("rank %d has come already, as process %d", c.world(h.rank), d.guests[h.rank].pid)
	}
	d.guests[h.rank].pid = pid
	return nil
}

// grant hands over the segment once there is one.
func (d *door) grant(conn *net.UnixConn, rank, pid int) {
	select {
	case <-d.over:
		return
	case <-d.made:
	}
	d.n.head.pid(rank).Store(int64(pid))
	conn.SetWriteDeadline(time.Now().Add(farewell))
	fds := []int{d.n.seg.fd}
	if e := d.n.head.events; e != nil {
		fds = append(fds, e.fds...) // nobody closes these before all have attached
	}
	for some := range slices.Chunk(fds, maxRights) {
		if _, _, err := conn.WriteMsgUnix([]byte{statusGranted}, unix.UnixRights(some...), nil); err != nil {
			if !gone(err) {
				c := d.n.cfg
				d.fail(asFailure(c.world(0), fmt.Errorf("hand the segment to rank %d: %w", c.world(rank), err)))
			}
			return
		}
	}
}

// gone reports that the other end is closed. hear reads its last message.
func gone(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }

// hear reads a rank's messages until serve closes the connection.
func (d *door) hear(conn *net.UnixConn, rank, pid int) {
	var status [1]byte
	for {
		if _, err := conn.Read(status[:]); err != nil {
			d.fail(asFailure(d.n.cfg.world(rank), fmt.Errorf("process %d has gone before all ranks had attached: %w",
				pid, err)))
			return
		}
		switch status[0] {
		case statusMapped:
			d.mapped(rank)
		case statusFailed, statusGaveUp:
			f, err := readFailure(conn)
			if err != nil {
				continue // the next read returns an error
			}
			f.rank = d.n.cfg.world(rank)
			if status[0] == statusGaveUp {
				f.text = d.missing(f.text)
			}
			d.fail(f)
		default:
			d.fail(asFailure(d.n.cfg.world(rank), fmt.Errorf("process %d sent status %d", pid, status[0])))
			return
		}
	}
}

// fail decides on a failure, if nothing has been decided yet.
func (d *door) fail(f *failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.decided {
		d.decided, d.failure = true, f
		close(d.over)
	}
}

// mapped notes that a rank has mapped the segment. For the last rank it decides that all have attached.
func (d *door) mapped(rank int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guests[rank].mapped = true
	for _, g := range d.guests[1:] {
		if !g.mapped {
			return
		}
	}
	if !d.decided {
		d.decided = true
		close(d.over)
	}
}

func (d *door) outcome() *failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// tell notes that a rank has been sent the outcome.
func (d *door) tell(rank int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if rank < 1 || rank >= len(d.guests) || d.guests[rank].told {
		return
	}
	d.guests[rank].told = true
	for _, g := range d.guests[1:] {
		if !g.told {
			return
		}
	}
	close(d.told)
}

// missing adds the ranks that were missing to the reason why a wait has ended.
func (d *door) missing(why string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for r, g := range d.guests[1:] {
		if !g.mapped {
			names = append(names, fmt.Sprint(d.n.cfg.world(r+1)))
		}
	}
	switch len(names) {
	case 0:
	case 1:
		why = fmt.Sprintf("rank %s has not attached: %s", names[0], why)
	default:
		why = fmt.Sprintf("ranks %s have not attached: %s", strings.Join(names, ", "), why)
	}
	if d.refused != nil {
		why += fmt.Sprintf("; somebody was refused: %v", d.refused)
	}
	return cutText(why)
}
