package meet

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/lazyregexp"
)

const (
	// pmiPatience is how long a rank waits at the barrier before it leaves its sign. If all ranks come in time, none
	// leaves a sign.
	pmiPatience = time.Second
	// pmiQuiet is how long a roll call goes on after the last sign. A rank that came a moment before leaves its sign
	// after pmiPatience.
	pmiQuiet = pmiPatience + 300*time.Millisecond
	// pmiPause is the time between two looks for the missing signs.
	pmiPause = 100 * time.Millisecond
	// pmiPauseEach is the pause per rank in a large job.
	pmiPauseEach = 500 * time.Microsecond
	// pmiAlone is the largest job in which each rank looks for all signs itself. In a larger one the lowest rank does
	// it for all.
	pmiAlone = 32
	// pmiLongestList bounds the list of the present ranks, in bytes.
	pmiLongestList = 600
	// pmiRollLimit is the usual bound of a roll call.
	pmiRollLimit = 4 * time.Second
	// pmiLongestHost bounds a host's name, in bytes: it travels as the name of an MPI port.
	pmiLongestHost = 150
)

var pmiGate = gate{"PMI", "barrier", "?"}

// barrier waits until all ranks have come. If ctx ends first, the error lists the missing ranks.
//
// The signs are names in the process manager's name service. Other hosts can read values under keys only after the
// barrier, but a rank that waits at the barrier may use the name service. If the process manager has no name service,
// the error has no list. Nothing else changes, because no rank waits for the service's answers while it may pass the
// barrier.
func (p *pmi) barrier(ctx context.Context, s *speaker) error {
	began := time.Now()
	if err := s.say(ctx, "barrier_in"); err != nil {
		return err
	}
	patience := pmiPatience
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(deadline)/2)
	}
	early, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.answer(early, "barrier_in", "barrier_out")
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		if err := s.notify(ctx, "publish_name service="+s.service(p.place.Rank)+" port="+p.sign()); err != nil {
			return err
		}
		if _, err = s.answer(ctx, "barrier_in", "barrier_out"); err == nil {
			err = s.notify(ctx, "unpublish_name service="+s.service(p.place.Rank))
		}
	}
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	waited := time.Since(began)
	roll, end := context.WithTimeout(context.Background(), p.rollLimit)
	defer end()
	hosts := p.hosts(roll, s)
	signs, err := p.callRoll(roll, s, hosts)
	return pmiGate.overdue(ctx, waited, hosts, signs, err)
}

// service is the name under which a rank leaves its sign. One name service may serve many jobs.
func (s *speaker) service(rank int) string { return fmt.Sprintf("gorovod-%s-%d", s.space, rank) }

// sign is this process's sign, in characters allowed by the protocol.
func (p *pmi) sign() string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.host[:min(len(p.host), pmiLongestHost)]))
}

// callRoll returns the signs of all ranks, by rank; nil for a rank without one. It ends pmiQuiet after the last sign.
// It returns an error if ctx ends before it has looked for all signs, or if it does not find this rank's own sign.
// hosts are the hosts that the launcher names.
func (p *pmi) callRoll(ctx context.Context, s *speaker, hosts []string) ([][]byte, error) {
	signs := make([][]byte, p.place.Size)
	tick := time.NewTicker(max(pmiPause, time.Duration(p.place.Size)*pmiPauseEach))
	defer tick.Stop()
	own, err := s.look(ctx, p.place.Rank)
	if err != nil {
		return nil, err
	}
	if own == nil {
		return nil, errors.New("this rank's own sign is not there")
	}
	if len(signs) > pmiAlone {
		if err := p.share(ctx, s, signs, hosts, tick.C); err != nil {
			return nil, err
		}
	}
	for last, complete := time.Now(), false; slices.ContainsFunc(signs, isNil) &&
		time.Since(last) < pmiQuiet; <-tick.C {
		for r, sign := range signs {
			if sign != nil {
				continue
			}
			sign, err := s.look(ctx, r)
			if err != nil && complete {
				return signs, nil
			}
			if err != nil {
				return nil, err
			}
			if signs[r] = sign; sign != nil {
				last = time.Now()
			}
		}
		complete = true
	}
	return signs, nil
}

func isNil(sign []byte) bool { return sign == nil }

// share fills in signs, with far fewer than n×n questions of n ranks:
//
//  1. The lowest rank looks for all signs, and leaves a list of the present ranks.
//  2. The others wait for the list, for a while.
//  3. They look up one sign for each host of the list. The other listed ranks get an empty sign.
//
// If the lowest rank's time was over earlier, the list may be old: a rank may have come since.
func (p *pmi) share(ctx context.Context, s *speaker, signs [][]byte, hosts []string,
	tick <-chan time.Time) (err error) {
	list := make([]byte, (len(signs)+7)/8) // a bit for each rank
	for r := range signs {
		if signs[r], err = s.look(ctx, r); err != nil {
			return err
		}
		if signs[r] == nil {
			continue
		}
		list[r/8] |= 1 << (r % 8)
		if r < p.place.Rank {
			break // r is the lowest rank, and looks for all
		}
	}
	if slices.IndexFunc(signs, func(m []byte) bool { return m != nil }) >= p.place.Rank {
		if len(list) > pmiLongestList {
			return nil
		}
		return s.notify(ctx, "publish_name service="+s.listService()+" port="+base64.RawURLEncoding.EncodeToString(
			list))
	}
	for began := time.Now(); time.Since(began) < pmiQuiet; <-tick {
		told, err := s.lookUp(ctx, s.listService())
		if err != nil {
			return err
		}
		if len(told) != len(list) {
			continue
		}
		named := map[string]bool{}
		for r := range signs {
			if signs[r] != nil || told[r/8]>>(r%8)&1 == 0 {
				continue
			}
			signs[r] = []byte{}
			if named[hosts[r]] {
				continue
			}
			named[hosts[r]] = true
			if signs[r], err = s.look(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// listService is the name under which share leaves a list.
func (s *speaker) listService() string { return "gorovod-" + s.space + "-list" }

// look returns the sign of a rank; nil if there is none.
func (s *speaker) look(ctx context.Context, rank int) ([]byte, error) {
	return s.lookUp(ctx, s.service(rank))
}

// lookUp returns what a rank has left under a name; nil if the name is not there, empty if no rank has written it.
func (s *speaker) lookUp(ctx context.Context, service string) ([]byte, error) {
	answer, err := s.ask(ctx, "lookup_name service="+service, "lookup_result")
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	port, there := answer["port"]
	if !there {
		return nil, nil
	}
	value, err := base64.RawURLEncoding.DecodeString(port)
	if err != nil || value == nil {
		value = []byte{}
	}
	return value, nil
}

// hosts returns the host on which the process manager has started each rank: a name of Slurm's node, otherwise a
// number; empty if the process manager does not tell.
func (p *pmi) hosts(ctx context.Context, s *speaker) []string {
	hosts := make([]string, p.place.Size)
	answer, err := s.ask(ctx, "get kvsname="+s.space+" key=PMI_process_mapping", "get_result")
	if err != nil {
		return hosts
	}
	nodes := processMapping(answer["value"], p.place)
	if nodes == nil {
		return hosts
	}
	count := slices.Max(nodes) + 1
	for r, n := range nodes {
		if len(p.place.Nodes) == count {
			hosts[r] = p.place.Nodes[n]
		} else {
			hosts[r] = fmt.Sprintf("number %d of %d", n+1, count)
		}
	}
	return hosts
}

// mapBlock matches one block of a process mapping: the first node, the number of nodes, and the ranks on each.
var mapBlock = lazyregexp.New(`^,\((\d{1,7}),(\d{1,7}),(\d{1,7})\)`)

// processMapping returns the node of each rank, as MPICH and its kin write it: "(vector,(0,2,4),(2,1,3))" has ranks 0
// to 3 on node 0, 4 to 7 on node 1, 8 to 10 on node 2, and then starts again. It is nil if the text has another form,
// or if it contradicts what this rank knows of its host: Slurm's mapping is wrong if the user has laid out the ranks.
func processMapping(text string, at environment.Place) []int {
	text, vector := strings.CutPrefix(text, "(vector")
	text, closed := strings.CutSuffix(text, ")")
	if !vector || !closed {
		return nil
	}
	var nodes []int
	for rest := text; len(nodes) < at.Size; {
		m := mapBlock().FindStringSubmatch(rest)
		if m == nil {
			return nil
		}
		first, _ := strconv.Atoi(m[1])
		count, _ := strconv.Atoi(m[2])
		each, _ := strconv.Atoi(m[3])
		if count*each == 0 {
			return nil
		}
		for i := 0; i < count*each && len(nodes) < at.Size; i++ {
			nodes = append(nodes, first+i/each)
		}
		if rest = rest[len(m[0]):]; rest == "" {
			rest = text
		}
	}
	here := 0
	for _, n := range nodes {
		if n == nodes[at.Rank] {
			here++
		}
	}
	if at.LocalSize > 0 && here != at.LocalSize {
		return nil
	}
	return nodes
}
