package shm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/failpoint"
)

// How ranks attach, by their places on this host:
//
//	rank 0: listen, make the segment            others: dial until rank 0 listens
//	        ◀───────────── mutual proof, with rank, size and pid ─────────────▶
//	        check uid and pid by SO_PEERCRED
//	        ───────────── granted, the memfd (and the bells) ─────────────────▶
//	                                            map it, check its identity
//	        ◀───────────────────────────── mapped ─────────────────────────────
//	        wait until all have mapped it
//	        ───────────────────────────── attached ───────────────────────────▶
//
// All attach or none does. In place of any message each side may send a failure, and a connection that ends early is a
// failure, too. The first failure of rank 0 itself, or of which rank 0 hears, is its last word to all ranks, also to
// late ones. So nobody waits for an event that cannot come any more, and all know the same cause.
const (
	statusFailed   byte = iota // a failure follows
	statusGaveUp               // to rank 0: the time is up; a failure follows
	statusGranted              // carries descriptors; repeated until all are there
	statusMapped               // to rank 0
	statusAttached             // all ranks have mapped the segment

	handshakeTimeout = 5 * time.Second // for a connection to rank 0 to prove itself
	farewell         = time.Second     // for a last word to a rank that should be reading
	dialPause        = 5 * time.Millisecond
)

// derive makes a value that only this job, generation and host have. The host's first rank stands for the host, so one
// machine can have several hosts.
func derive(c Config, what string) []byte {
	h := hmac.New(sha256.New, c.Key)
	fmt.Fprintf(h, "%s|%q|%d|%d", what, c.Job, c.Generation, c.world(0))
	return h.Sum(nil)
}

// address is rank 0's socket in the abstract name space.
func address(c Config) string { return "@gorovod-" + hex.EncodeToString(derive(c, "segment")[:16]) }

func proofKey(c Config) []byte { return derive(c, "proof") }

// hello describes a rank inside the proof; rank is its place on the host.
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

// join attaches this rank; its error is a *failure. After a failure, Close releases all that join has opened.
func (n *Network) join(ctx context.Context) error {
	attach := n.guest
	if n.cfg.Rank == 0 {
		attach = n.host
	}
	if err := attach(ctx); err != nil {
		return asFailure(n.cfg.world(n.cfg.Rank), err)
	}
	if err := n.watch.start(n); err != nil {
		n.Abort(err) // the others are attached already
		return asFailure(n.cfg.world(n.cfg.Rank), err)
	}
	return nil
}

// adopt maps the segment. From then on n owns the descriptors of the segment and of the bells.
func (n *Network) adopt(fds []int, prepare func(h *header) error) error {
	fd := fds[0]
	h, err := mapHeader(fd, n.cfg.Size)
	if err == nil {
		if n.cfg.Rank > 0 {
			failpoint.Scramble("attach", h.mem[:identityBytes])
		}
		err = prepare(h)
		n.openToOthers(h)
		if n.cfg.Rank == 0 {
			failpoint.Scramble("attach", h.mem[:identityBytes])
		}
	}
	if err == nil {
		n.seg, err = openSegment(fd, n.cfg)
	}
	if err != nil {
		closeAll(fds)
		return err
	}
	failpoint.Share("lanes", h.laneWords()...)
	own := bell{head: h, rank: n.cfg.Rank}
	n.head, n.bell = h, &own
	if n.cfg.Alarm {
		h.events = newEvents(fds[1:], n.cfg.TrackFD)
		n.bell = &alarm{bell: own}
	}
	return nil
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

var errSegment = errors.New("the segment does not fit")
