package shm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/auth"
)

// How ranks attach:
//
//	rank 0: make the segment, listen            others: dial until rank 0 listens
//	        ◀───────────── mutual proof, with rank, size and pid ─────────────▶
//	        check uid and pid by SO_PEERCRED
//	        ─────────────────── status byte and the memfd ────────────────────▶
//	                                            map it, check its identity
//	        ◀───────────── all count themselves in and wait for all ──────────▶
const (
	statusRefused byte = 0 // the reason follows
	statusGranted byte = 1 // carries the descriptor

	handshakeTimeout = 5 * time.Second // for one stranger on rank 0's socket
	dialPause        = 5 * time.Millisecond
	attachSlice      = 20 * time.Millisecond
)

// derive makes what belongs to this job and generation only.
func derive(c Config, what string) []byte {
	h := hmac.New(sha256.New, c.Key)
	fmt.Fprintf(h, "%s|%q|%d", what, c.Job, c.Generation)
	return h.Sum(nil)
}

// address is rank 0's socket in the abstract name space.
func address(c Config) string { return "@gorovod-" + hex.EncodeToString(derive(c, "segment")[:16]) }

func proofKey(c Config) []byte { return derive(c, "proof") }

// hello is what a rank says of itself inside the proof.
type hello struct{ rank, size, pid int }

const helloSize = 24

func (h hello) encode() []byte {
	var p []byte
	for _, v := range []int{h.rank, h.size, h.pid} {
		p = binary.BigEndian.AppendUint64(p, uint64(v))
	}
	return p
}

func decodeHello(p []byte) (hello, error) {
	if len(p) != helloSize {
		return hello{}, fmt.Errorf("a hello of %d bytes, want %d", len(p), helloSize)
	}
	field := func(i int) int { return int(binary.BigEndian.Uint64(p[8*i:])) }
	return hello{rank: field(0), size: field(1), pid: field(2)}, nil
}

// join attaches this rank. What it has opened when it fails is released by Close.
func (n *Network) join(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			n.Abort(err) // the others need not wait for their own time-outs
		}
	}()
	if n.cfg.Rank == 0 {
		err = n.host(ctx)
	} else {
		err = n.guest(ctx)
	}
	if err != nil {
		return err
	}
	return n.watch.start(n)
}

// adopt maps the segment; the descriptor belongs to n afterwards.
func (n *Network) adopt(fd int, prepare func(h *header) error) error {
	h, err := mapHeader(fd, n.cfg.Size)
	if err == nil {
		err = prepare(h)
	}
	if err == nil {
		n.seg, err = openSegment(fd, n.cfg)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	n.head, n.bell = h, &bell{head: h, rank: n.cfg.Rank}
	return nil
}

// host is rank 0's part.
func (n *Network) host(ctx context.Context) error {
	fd, err := createSegment(n.cfg)
	if err != nil {
		return err
	}
	err = n.adopt(fd, func(h *header) error {
		h.format(n.cfg)
		h.pid(0).Store(int64(os.Getpid()))
		return nil
	})
	if err != nil {
		return err
	}
	n.head.attach()
	if n.cfg.Size == 1 {
		return nil
	}
	d, err := n.listen()
	if err != nil {
		return err
	}
	defer d.close()
	if err := n.awaitAll(ctx); err != nil {
		return errors.Join(d.missing(err), d.lastRefusal())
	}
	return nil
}

// awaitAll waits until all ranks have attached.
func (n *Network) awaitAll(ctx context.Context) error {
	for n.head.awaitAttached(attachSlice) < n.cfg.Size {
		if n.head.aborted() {
			return n.head.abortCause()
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for all ranks to attach: %w", err)
		}
	}
	return nil
}

// door hands the segment to those who may have it.
type door struct {
	n  *Network
	ln *net.UnixListener
	wg sync.WaitGroup

	mu      sync.Mutex // protects what follows
	conns   map[*net.UnixConn]bool
	closed  bool
	refused error // the last refusal
}

func (n *Network) listen() (*door, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address(n.cfg), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the other ranks: %w", err)
	}
	d := &door{n: n, ln: ln, conns: map[*net.UnixConn]bool{}}
	d.wg.Go(d.accept)
	return d, nil
}

func (d *door) accept() {
	for {
		conn, err := d.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(dialPause) // out of descriptors, say
			continue
		}
		if !d.enter(conn) {
			conn.Close()
			return
		}
		d.wg.Go(func() {
			defer d.leave(conn)
			if err := d.admit(conn); err != nil {
				d.mu.Lock()
				d.refused = err
				d.mu.Unlock()
			}
		})
	}
}

func (d *door) enter(conn *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.conns[conn] = true
	}
	return !d.closed
}

func (d *door) leave(conn *net.UnixConn) {
	d.mu.Lock()
	delete(d.conns, conn)
	d.mu.Unlock()
	conn.Close()
}

// close ends the door's goroutines.
func (d *door) close() {
	d.ln.Close()
	d.mu.Lock()
	d.closed = true
	for c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.wg.Wait()
}

// admit checks who is at the door and hands over the segment.
func (d *door) admit(conn *net.UnixConn) error {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	pid, err := peer(conn)
	if err != nil {
		return err
	}
	p, err := auth.Accept(conn, proofKey(d.n.cfg))
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	h, err := decodeHello(p)
	if err == nil {
		err = d.register(h, pid)
	}
	if err != nil {
		conn.Write(append([]byte{statusRefused}, err.Error()...))
		return fmt.Errorf("process %d: %w", pid, err)
	}
	if _, _, err := conn.WriteMsgUnix([]byte{statusGranted}, unix.UnixRights(d.n.seg.fd), nil); err != nil {
		return fmt.Errorf("hand the segment to rank %d: %w", h.rank, err)
	}
	return nil
}

// register notes the pid of a rank that has proved itself.
func (d *door) register(h hello, pid int) error {
	c := d.n.cfg
	switch {
	case h.size != c.Size:
		return fmt.Errorf("it counts %d ranks on this host, rank 0 counts %d", h.size, c.Size)
	case h.rank < 1 || h.rank >= c.Size:
		return fmt.Errorf("it says that it is rank %d of %d", h.rank, c.Size)
	case h.pid != pid:
		return fmt.Errorf("it says that its pid is %d: it lives in another pid namespace", h.pid)
	case !d.n.head.pid(h.rank).CompareAndSwap(0, int64(pid)):
		return fmt.Errorf("rank %d has attached already, as process %d", h.rank, d.n.head.pid(h.rank).Load())
	}
	return nil
}

// missing explains err by the ranks that have not come.
func (d *door) missing(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var names []string
	for r := range d.n.cfg.Size {
		if d.n.head.pid(r).Load() == 0 {
			names = append(names, fmt.Sprint(r))
		}
	}
	switch len(names) {
	case 0:
		return fmt.Errorf("not all ranks have mapped the segment: %w", err)
	case 1:
		return fmt.Errorf("rank %s has not attached: %w", names[0], err)
	}
	return fmt.Errorf("ranks %s have not attached: %w", strings.Join(names, ", "), err)
}

func (d *door) lastRefusal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused == nil {
		return nil
	}
	return fmt.Errorf("somebody was refused: %w", d.refused)
}

// peer returns the pid at the other end; it must belong to this user.
func peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, fmt.Errorf("who is at the other end of the socket: %w", credErr)
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("process %d belongs to user %d, not %d", cred.Pid, cred.Uid, os.Geteuid())
	}
	return int(cred.Pid), nil
}

// guest is the part of the other ranks.
func (n *Network) guest(ctx context.Context) error {
	fd, err := n.receiveSegment(ctx)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < int64(segmentBytes(n.cfg)) {
		unix.Close(fd)
		return fmt.Errorf("rank 0's segment has %d bytes, want %d: do all ranks have the same configuration? %w",
			st.Size, segmentBytes(n.cfg), errors.Join(err, errSegment))
	}
	if err := n.adopt(fd, func(h *header) error { return h.check(n.cfg) }); err != nil {
		return err
	}
	n.head.attach()
	return n.awaitAll(ctx)
}

var errSegment = errors.New("the segment does not fit")

// receiveSegment fetches the memfd from rank 0.
func (n *Network) receiveSegment(ctx context.Context) (fd int, err error) {
	conn, err := n.dial(ctx)
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := peer(conn); err != nil {
		return -1, fmt.Errorf("the process that listens for rank 0: %w", err)
	}
	me := hello{rank: n.cfg.Rank, size: n.cfg.Size, pid: os.Getpid()}
	if err := auth.Initiate(conn, proofKey(n.cfg), me.encode()); err != nil {
		return -1, fmt.Errorf("prove the secret to rank 0: %w", errors.Join(ctx.Err(), err))
	}
	status, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	k, oobn, _, _, err := conn.ReadMsgUnix(status, oob)
	if err != nil || k == 0 {
		return -1, fmt.Errorf("receive the segment from rank 0: %w", errors.Join(ctx.Err(), err, eof(k)))
	}
	if status[0] != statusGranted {
		why, _ := io.ReadAll(io.LimitReader(conn, 1<<10))
		return -1, fmt.Errorf("rank 0 refuses this rank: %s", strings.ToValidUTF8(string(why), ""))
	}
	return receivedFD(oob[:oobn])
}

func eof(n int) error {
	if n == 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func receivedFD(oob []byte) (int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err == nil && len(msgs) == 1 {
		var fds []int
		if fds, err = unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, fmt.Errorf("rank 0 sent no descriptor (too many open files?): %w", errors.Join(err, errSegment))
}

// dial connects to rank 0's socket as soon as it is there.
func (n *Network) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", address(n.cfg))
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rank 0 does not offer a segment: %w", errors.Join(ctx.Err(), err))
		case <-time.After(dialPause):
		}
	}
}
