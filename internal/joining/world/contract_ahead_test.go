package world

import (
	"fmt"
	"testing"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// TestContractAhead runs the allreduces, broadcasts, allgathers and barriers with data that travels with the marks
// between hosts: always where it can, only if it is very short, and never. Each case runs alone, then with all others
// of its row, and then alone again, when every name has a card, and there is room for the data of each.
func TestContractAhead(t *testing.T) {
	asProcesses(t)
	for _, c := range []struct {
		ranks     int
		transport string
	}{{2, "tcp"}, {3, "on aba"}, {4, "on aabc"}, {3, "tls on aab"}} {
		for _, early := range []int{0, 16, 4096} {
			t.Run(fmt.Sprintf("%d ranks over %s, up to %d bytes", c.ranks, c.transport, early), func(t *testing.T) {
				w := joinAllWith(t, c.ranks, c.transport, func(c *config.Config) {
					c.EarlyBytes, c.CacheCapacity = early, 512
				})
				tried := new(cell)
				types := []tensor.DType{tensor.Float32, tensor.BFloat16}
				if c.ranks == 2 && !raceDetector && !testing.Short() {
					types = allTypes() // the bytes of all types travel alike
				}
				for _, dt := range types {
					for _, op := range []tensor.ReduceOp{tensor.Average, tensor.Sum, tensor.Min, tensor.Max,
						tensor.Product, tensor.BitXor} {
						name, steps := fmt.Sprint("allreduce, ", op), shortAllreduces(dt, op, c.ranks)
						w.tryAll(name, steps, tried)
						w.tryAlone(name, steps, tried)
					}
					for name, steps := range map[string][]step{"broadcast": broadcasts(dt, c.ranks),
						"allgather": allgathers(dt, c.ranks)} {
						w.tryAll(name, steps, tried)
						w.tryAlone(name, steps, tried)
					}
					w.tryBarrier(tried)
					w.tryJoin(dt, tried)
				}
				for r, rank := range w.ws {
					ahead := rank.Engine.Counters().Ahead.Load()
					if (ahead > 0) != (early > 0) {
						t.Errorf("rank %d: %d results have come with the log", r, ahead)
					}
				}
			})
		}
	}
}

// shortAllreduces are trials of Allreduces of which most are as short as operands that travel ahead.
func shortAllreduces(dt tensor.DType, op tensor.ReduceOp, n int) []step {
	var trials []*trial
	for _, s := range []tensor.Shape{{}, {0}, {2}, {65}, {3, 5}, {900}, {5000}} {
		for _, f := range []factors{plain, {1, 2.5}, scaled} {
			for _, inPlace := range []bool{false, true} {
				trials = append(trials, allreduce(dt, op, n, s, f, exact, inPlace))
			}
		}
		if op != tensor.Product {
			trials = append(trials, allreduce(dt, op, n, s, plain, rough, true))
		}
	}
	return singles(trials)
}

// tryAlone runs the steps one by one.
func (all *worlds) tryAlone(row string, steps []step, c *cell) {
	attempts := make([][]*attempt, len(all.ws))
	all.each(func(r int) { attempts[r] = all.submit(r, row, steps, false) })
	for k, a := range attempts[0] {
		if bad := all.judge(attempts, k); bad != "" {
			all.t.Errorf("%s: %s, again: %v: %s", all.transport, row, a.trial, bad)
		} else {
			c.count(a.trial)
		}
	}
}
