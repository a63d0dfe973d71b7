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

	"github.com/gorovod/gorovod/internal/bootstrap/environment"
	"github.com/gorovod/gorovod/internal/lazyregexp"
)

const (
	// pmiPatience is how long a rank waits at the barrier before it leaves its sign. A start that goes well needs none.
	pmiPatience = time.Second
	// pmiQuiet is how long a roll call goes on after the last sign. A rank that came a moment before leaves its sign
	// after pmiPatience.
	pmiQuiet = pmiPatience + 300*time.Millisecond
	// pmiPause is between two looks for the signs that are not there.
	pmiPause = 100 * time.Millisecond
	// pmiPauseEach is what the pause is for each rank of a large job.
	pmiPauseEach = 500 * time.Microsecond
	// pmiAlone is how many ranks look for all signs, each for itself; where there are more, one does it for all.
	pmiAlone = 32
	// pmiLongestList is of the list of those who are there, in bytes.
	pmiLongestList = 600
	// pmiRollLimit is the usual bound of a roll call.
	pmiRollLimit = 4 * time.Second
	// pmiLongestHost is of a host's name, which is to fit where MPI has the name of a port.
	pmiLongestHost = 150
)

var pmiGate = gate{"PMI", "barrier", "?"}

// barrier waits until all ranks have come. If the time is over before, the error lists the ranks that have not.
//
// The signs are names in the process manager's name service, since what is put under keys is to be had after the
// barrier only, or on the same host. A rank that waits at the barrier may speak with it. A process manager that has
// none costs the error its list, and nothing else: answers are not waited for while the barrier may be passed.
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

// sign is this process's, in letters that the protocol takes.
func (p *pmi) sign() string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.host[:min(len(p.host), pmiLongestHost)]))
}

// callRoll returns the signs of all ranks, by rank, nil for those that have left none until pmiQuiet after the last.
// It is an error if ctx ends before it has looked for all, or if not even this rank's own sign is found. hosts are the
// launcher's.
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

// share fills in signs with those that the lowest rank has found, so that n ranks need not ask n times n: that rank
// looks for all and leaves a list, for which the others wait for a while. The list may be old, if that rank's time was
// over earlier: a rank that is not on it may have come since. Of the listed ranks, one of each host is asked for its
// sign, which is empty for the others.
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
			break // which is the lowest, and does that
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

// look is the sign of a rank, nil if there is none.
func (s *speaker) look(ctx context.Context, rank int) ([]byte, error) {
	return s.lookUp(ctx, s.service(rank))
}

// lookUp is what is left under a name, nil if nothing is, and empty if it is nothing of a rank's.
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

// hosts are where the process manager has started the ranks: the names of Slurm's nodes, else numbers; empty where it
// does not tell.
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

// mapBlock is one of a process mapping's: a first node, so many nodes from it on, and so many ranks on each.
var mapBlock = lazyregexp.New(`^,\((\d{1,7}),(\d{1,7}),(\d{1,7})\)`)

// processMapping is the node of each rank as MPICH and its kin write it: "(vector,(0,2,4),(2,1,3))" has ranks 0 to 3 on
// node 0, 4 to 7 on node 1, 8 to 10 on node 2, and then goes round. It is nil where that is of another form, or
// contradicts what is known of this host: Slurm's is wrong where the user has laid out the ranks.
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
