package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// The pauses between attempts to reach node 0, which may not have started yet.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// staleTime is how long a name may lead to another job: the name servers of a cluster keep the address of a pod that
// was replaced for up to half a minute, and another job's pod may get this address meanwhile.
const staleTime = 30 * time.Second

// RefusedError is node 0's reason for refusing a node.
type RefusedError struct {
	Text  string
	Other bool // it is another job's node 0
}

func (e *RefusedError) Error() string { return e.Text }

// Join goes to node 0, and returns the connection on which node 0 has let this node in. It tries until ctx ends,
// because node 0 may start later, and its name may be unknown until then. It says now and then what it waits for. host
// is this node's name, slots how many processes it may run, and key the secret that all nodes share.
func Join(ctx context.Context, place Place, host string, slots int, key []byte, say func(text string)) (*auth.Sealed,
	error) {
	h, err := json.Marshal(hello{Version: helloVersion, Count: place.Count, Rank: place.Rank, Elastic: place.Elastic,
		ID: place.ID, Host: host, Slots: slots})
	if err != nil {
		return nil, err
	}
	began, word, told := time.Now(), firstWord, time.Time{}
	var other time.Time // since when the name leads to another job
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := visit(ctx, place, key, h)
		if errors.Is(err, auth.ErrProof) {
			err = &RefusedError{Other: true,
				Text: fmt.Sprintf("node 0 at %s has another secret: give all nodes the same", place.Address())}
		}
		if errors.Is(err, auth.ErrCertificate) {
			err = &RefusedError{Text: fmt.Sprintf("node 0 at %s: %v", place.Address(), err)}
		}
		var refused *RefusedError
		switch {
		case err == nil:
			return conn, nil
		case !errors.As(err, &refused):
			other = time.Time{}
		case !refused.Other || net.ParseIP(place.Head) != nil || !other.IsZero() && time.Since(other) > staleTime:
			return nil, err
		case other.IsZero():
			other = time.Now()
			say(fmt.Sprintf("%v; this node goes on trying for %v, since %s may still lead to an old address", err,
				staleTime, place.Head))
		}
		late := fmt.Errorf("node 0 cannot be reached at %s: %w", place.Address(), err)
		if other.IsZero() && time.Since(began) > word && time.Since(told) > word {
			say(late.Error() + "; this node goes on trying" + forHowLong(ctx))
			told, word = time.Now(), min(2*word, lastWord)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil, fmt.Errorf("%w\n    does node 0 run, and is this its name? --start-timeout gives it more "+
					"time. If the job is over, node 0 has ended, and this node came too late", late)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// forHowLong says how much time is left until ctx ends.
func forHowLong(ctx context.Context) string {
	end, limited := ctx.Deadline()
	if !limited {
		return ""
	}
	return fmt.Sprintf(" for %v (--start-timeout); if the job is over, node 0 does not come any more",
		time.Until(end).Round(time.Second))
}

// visit tries once to reach node 0.
func visit(ctx context.Context, place Place, key, hello []byte) (*auth.Sealed, error) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", place.Address())
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Err != nil {
			err = op.Err
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	sealed, err := introduce(conn, place.Certificates, key, hello)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if !stop() { // ctx has ended, and has set the deadline
		conn.Close()
		return nil, context.Cause(ctx)
	}
	watch(conn)
	return sealed, nil
}

func introduce(conn net.Conn, certs auth.Certificates, key, hello []byte) (*auth.Sealed, error) {
	if err := auth.Initiate(conn, key, hello); err != nil {
		return nil, err
	}
	sealed, err := certs.Seal(conn, key, true)
	if err != nil {
		return nil, err
	}
	v, err := readVerdict(sealed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it has not answered: %w", err)
	case v.Refused != "":
		return nil, &RefusedError{strings.ToValidUTF8(v.Refused, "?"), v.Other}
	}
	return sealed, nil
}
