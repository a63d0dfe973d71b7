package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// guest attaches a rank other than 0. If it reaches rank 0, rank 0 decides: then the error is the failure that all
// ranks hear, even if this rank has one of its own.
func (n *Network) guest(ctx context.Context) error {
	conn, err := n.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := peer(conn); err != nil {
		return fmt.Errorf("the process that listens for rank %d: %w", n.cfg.world(0), err)
	}
	me := hello{rank: n.cfg.Rank, size: n.cfg.Size, pid: os.Getpid()}
	if err := auth.Initiate(conn, proofKey(n.cfg), me.encode()); err != nil {
		return fmt.Errorf("prove the secret to rank %d: %w", n.cfg.world(0), n.explain(ctx, err))
	}
	err = n.attach(conn)
	if told := (*failure)(nil); err == nil || errors.As(err, &told) {
		return err
	}
	stop()
	return n.report(ctx, conn, n.explain(ctx, err))
}

// explain returns err, or the reason why the wait that ended with err was cut short.
func (n *Network) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("waiting for rank %d and the other ranks: %w", n.cfg.world(0), ctx.Err())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("rank %d has gone before all ranks had attached: %w", n.cfg.world(0), err)
	}
	return err
}

// attach does the steps after the proof.
func (n *Network) attach(conn *net.UnixConn) error {
	fds, err := n.receiveSegment(conn)
	if err != nil {
		return err
	}
	if err := n.mapSegment(fds); err != nil {
		return err
	}
	conn.Write([]byte{statusMapped}) // if rank 0 has closed already, its last word says why
	return lastWord(conn)
}

// report tells rank 0 that this rank cannot attach, and returns the failure that all ranks hear.
func (n *Network) report(ctx context.Context, conn *net.UnixConn, err error) error {
	me := n.cfg.world(n.cfg.Rank)
	mine, status := asFailure(me, err), statusFailed
	if ctx.Err() != nil {
		status = statusGaveUp
	}
	conn.SetDeadline(time.Now().Add(farewell))
	conn.Write(mine.message(status)) // fails if rank 0 has gone; then the next read fails, too
	answer := lastWord(conn)
	var told *failure
	switch {
	case answer == nil:
		return nil // the time was up when all had attached
	case !errors.As(answer, &told):
		return mine
	}
	if told.rank == me {
		told.cause = err
	}
	return told
}

// lastWord waits for rank 0's decision: nil if all have attached. It skips a grant, because this rank failed before the
// grant came.
func lastWord(conn *net.UnixConn) error {
	for {
		var status [1]byte
		if _, err := io.ReadFull(conn, status[:]); err != nil {
			return err
		}
		switch status[0] {
		case statusGranted:
		case statusAttached:
			return nil
		default:
			return failed(conn, status[0])
		}
	}
}

// failed reads the failure that rank 0 sends.
func failed(conn *net.UnixConn, status byte) error {
	if status != statusFailed {
		return fmt.Errorf("the first rank of this host sent status %d", status)
	}
	f, err := readFailure(conn)
	if err != nil {
		return err
	}
	return f
}

// maxRights is the most descriptors in one message. The kernel takes at most 253. Tests make it smaller.
var maxRights = 250

// receiveSegment waits for the memfd, which comes first, and the bells.
func (n *Network) receiveSegment(conn *net.UnixConn) (fds []int, err error) {
	want := 1
	if n.cfg.Alarm {
		want += n.cfg.Size
	}
	for len(fds) < want && err == nil {
		var some []int
		some, err = receiveFDs(conn, min(want-len(fds), maxRights))
		fds = append(fds, some...)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

// receiveFDs receives a grant with that many descriptors.
func receiveFDs(conn *net.UnixConn, count int) (fds []int, err error) {
	status, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*count))
	k, oobn, _, _, err := conn.ReadMsgUnix(status, oob)
	if err == nil && k == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("receive the segment: %w", err)
	}
	if status[0] != statusGranted {
		return nil, failed(conn, status[0])
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err == nil && len(msgs) == 1 {
		fds, err = unix.ParseUnixRights(&msgs[0])
	}
	if err != nil || len(fds) != count {
		closeAll(fds)
		return nil, fmt.Errorf("the first rank of this host sent %d of %d descriptors (too many open files?): %w",
			len(fds), count, errors.Join(err, errSegment))
	}
	return fds, nil
}

// mapSegment checks the size of the segment that rank 0 has sent, and maps it.
func (n *Network) mapSegment(fds []int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fds[0], &st); err != nil || st.Size < int64(segmentBytes(n.cfg)) {
		closeAll(fds)
		return fmt.Errorf("rank %d's segment has %d bytes, want %d: do all ranks have the same configuration? %w",
			n.cfg.world(0), st.Size, segmentBytes(n.cfg), errors.Join(err, errSegment))
	}
	return n.adopt(fds, func(h *header) error { return h.check(n.cfg) })
}

// dial connects to rank 0's socket as soon as it is there.
func (n *Network) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", address(n.cfg))
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		// Refused: rank 0 does not listen yet. A time-out: ctx has ended, or too many connections wait to be accepted
		// (EAGAIN).
		var trouble net.Error
		timeout := errors.As(err, &trouble) && trouble.Timeout()
		if ctx.Err() == nil && !timeout && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("connect to rank %d: %w", n.cfg.world(0), err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d does not offer a segment: %w (%w)", n.cfg.world(0), ctx.Err(), err)
		case <-time.After(dialPause):
		}
	}
}
