package meet

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
)

// pmi is a store in the key-value space of a process manager, by version 1 of the PMI wire protocol: lines of
// name=value pairs over a socket that the process inherits. All ranks use it together and once: there is a barrier
// between writing and reading.
//
// If a process has used the connection and ends without PMI's finalize, the process manager takes this for a crash. So
// pmi sends finalize at once. After that MPI cannot be initialised in the process.
type pmi struct {
	fd    int
	place environment.Place
	host  string // the name of this process's host in messages

	rollLimit time.Duration // the limit of a roll call
}

const pmiKey = "gorovod-rendezvous"

func newPMI(at environment.Place, host string) (*pmi, error) {
	fd, err := strconv.Atoi(at.PMI)
	if err != nil || fd < 0 {
		return nil, fmt.Errorf("PMI_FD=%q is no file descriptor", at.PMI)
	}
	return &pmi{fd, at, host, pmiRollLimit}, nil
}

func (p *pmi) String() string { return "PMI" }

// Publish takes part in the barrier. The other ranks do so in Read.
func (p *pmi) Publish(ctx context.Context, o Offer) (withdraw func(), err error) {
	return func() {}, p.talk(ctx, func(s *speaker) error {
		for {
			text, err := json.Marshal(o)
			if err != nil {
				return err
			}
			value := base64.RawURLEncoding.EncodeToString(text)
			if len(value) < s.longest {
				_, err := s.ask(ctx, "put kvsname="+s.space+" key="+pmiKey+" value="+value, "put_result")
				if err != nil {
					return err
				}
				break
			}
			if len(o.Addrs) < 2 {
				return fmt.Errorf("a value of %d bytes, and the process manager takes %d", len(value), s.longest)
			}
			o.Addrs = o.Addrs[:len(o.Addrs)-1] // the likeliest ones come first
		}
		return p.barrier(ctx, s)
	})
}

// Read takes part in the barrier, and reads.
func (p *pmi) Read(ctx context.Context, stale *Offer) (o Offer, err error) {
	if stale != nil {
		return o, errors.New("rank 0's rendezvous is gone")
	}
	err = p.talk(ctx, func(s *speaker) error {
		if err := p.barrier(ctx, s); err != nil {
			return err
		}
		answer, err := s.ask(ctx, "get kvsname="+s.space+" key="+pmiKey, "get_result")
		if err != nil {
			return err
		}
		text, err := base64.RawURLEncoding.DecodeString(answer["value"])
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			return errors.New("rank 0 has left something else under this name")
		}
		return nil
	})
	return o, err
}

// talk begins the conversation, calls f, and sends finalize unless f has failed.
func (p *pmi) talk(ctx context.Context, f func(*speaker) error) error {
	s, err := dialPMI(ctx, p.fd)
	if err != nil {
		return err
	}
	defer s.close()
	if err := f(s); err != nil {
		return err
	}
	return s.finish(ctx)
}
