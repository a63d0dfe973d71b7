// Package reach finds a way from one process of a job to another that has several addresses. It says which addresses to
// offer and in which order to try a peer's, and it tries them. It does not trust an address that answers: the dialler
// proves the other end, so an address that belongs to another process here does no harm.
package reach

import (
	"context"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Stagger is the head start of an address over the next one. If an address fails sooner, the next one starts at once.
const Stagger = 250 * time.Millisecond

// Race calls dial for the addresses 0 to n-1, each one Stagger after the one before, or as soon as that has failed. It
// returns the first success, with the address's number. It then ends the context of the other calls, waits for them,
// and passes late successes to discard. If none succeeds, errs are their errors, by number. When ctx ends, addresses
// that have not begun fail.
func Race[T any](ctx context.Context, n int, dial func(ctx context.Context, i int) (T, error), discard func(T)) (won T,
	number int, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		value T
		i     int
		err   error
	}
	results := make(chan result, n)
	errs = make([]error, n)
	number = -1
	begun, running := 0, 0
	stagger := time.NewTimer(0)
	defer stagger.Stop()
	for number < 0 && (begun < n || running > 0) {
		select {
		case <-stagger.C:
			if begun == n {
				continue
			}
			i := begun
			begun++
			running++
			failed := func(err error) { results <- result{i: i, err: err} }
			guard.Go("the making of a connection", failed, func() {
				v, err := dial(ctx, i)
				results <- result{v, i, err}
			})
			stagger.Reset(Stagger)
		case r := <-results:
			running--
			if r.err == nil {
				won, number = r.value, r.i
				break
			}
			errs[r.i] = r.err
			stagger.Reset(0)
		case <-ctx.Done():
			for ; begun < n; begun++ {
				errs[begun] = ctx.Err()
			}
			for ; running > 0; running-- {
				r := <-results
				if r.err == nil {
					discard(r.value)
					r.err = ctx.Err()
				}
				errs[r.i] = r.err
			}
		}
	}
	cancel()
	for ; running > 0; running-- {
		if r := <-results; r.err == nil {
			discard(r.value)
		}
	}
	if number >= 0 {
		errs = nil
	}
	return won, number, errs
}
