package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/load"
)

// reportVersion changes when readers of the JSON must change.
const reportVersion = 1

// Report is the result of a run. --json writes it as JSON. Times are in seconds, rates in bytes per second.
type Report struct {
	Version int       `json:"version"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Gorovod string    `json:"gorovod"`
	Ranks   int       `json:"ranks"`
	Quick   bool      `json:"quick"`
	Rounds  int       `json:"rounds"`
	Machine Machine   `json:"machine"`
	Limits  Limits    `json:"limits"`
	Peers   []Peer    `json:"peers"`
	Skipped []Skipped `json:"skipped,omitempty"` // not found
	Failed  []Skipped `json:"failed,omitempty"`  // left out from some point on
	Results []Result  `json:"results"`
	Modes   []Round   `json:"modes"`          // one for each round
	Fast    *FastMode `json:"fast,omitempty"` // if some rounds were of the fast mode and some were not
	// Noise says why no figure of the run is fit for comparison; empty if nothing is known against them.
	Noise []string `json:"noise,omitempty"`
}

// Round is the machine's mode in a round.
type Round struct {
	// TwoCores is the slower of the looks before and after the round; see Limits.
	TwoCores float64 `json:"two_cores"`
	Fast     bool    `json:"fast"` // both looks were fast
}

// FastMode is the results of the rounds in the machine's fast mode alone.
type FastMode struct {
	Rounds  int      `json:"rounds"`
	Limits  Limits   `json:"limits"`
	Results []Result `json:"results"`
}

// Peer is a contender, including this engine's.
type Peer struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Skipped says why some or all figures of a peer are missing.
type Skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Limits are the machine's limits.
type Limits struct {
	// AddTraffic is how many bytes per second all ranks together read and write when each rank adds one array to
	// another in place. The arrays are larger than the cache.
	AddTraffic *Stat `json:"add_traffic"`
	// Allreduce is AddTraffic/(2·ranks): the upper limit of a tensor's bytes per second.
	Allreduce float64 `json:"allreduce"`
	// TCP is one stream over loopback.
	TCP *Stat `json:"tcp,omitempty"`
	// Wake is how long it takes to wake another process by a futex.
	Wake *Stat `json:"wake,omitempty"`
	// TwoCores is how many times as long a fixed computation in the cache takes on two threads at once as on one. It
	// sums up the looks before and after the rounds.
	TwoCores *Stat `json:"two_cores,omitempty"`
	// Mode is Open MPI's time for 1 MiB on two ranks divided by 115 µs; 0 without
	// Open MPI. Above 1 the machine is slower than in its fast mode.
	Mode float64 `json:"mode,omitempty"`
}

// modeSeconds is Open MPI's time for 1 MiB in the fast mode.
const modeSeconds = 115e-6

// Result is the result of one peer for one task.
type Result struct {
	Task  string `json:"task"`
	Bytes int    `json:"bytes"` // that one rank contributes
	Peer  string `json:"peer"`
	Time  Stat   `json:"time"`
	// AlgBW is Bytes divided by the median time. BusBW is AlgBW·2(n-1)/n, which does not depend on the number of ranks
	// if each link is used equally well.
	AlgBW float64 `json:"algbw"`
	BusBW float64 `json:"busbw"`
	// OfLimit is AlgBW as a fraction of Limits.Allreduce. Above 1 the tensor stayed in the cache.
	OfLimit float64 `json:"of_limit"`
	// Early: the time was over before the first round that would have measured it, so the figures are those of the
	// warm-up.
	Early bool `json:"early,omitempty"`
	// Ratios are the other peers' median times divided by this one's: how many times as fast this peer is.
	Ratios map[string]float64 `json:"ratios"`
}

// conclude computes the report's figures from the samples.
func (r *Report) conclude(s *schedule) {
	early := map[*series]bool{}
	for _, x := range s.series {
		if len(x.samples) == 0 {
			x.samples = slices.Clone(x.early)
			early[x] = true
		}
	}
	r.Limits, r.Results = figure(r.Ranks, s.series, early)
	for i, after := range s.modes[min(1, len(s.modes)):] {
		r.Modes = append(r.Modes, Round{TwoCores: max(s.modes[i], after), Fast: fast(s.modes[i], after)})
	}
	if m := slices.Clone(s.modes); len(m) > 0 && slices.Min(m) > 0 {
		both := newStat(m)
		r.Limits.TwoCores = &both
	}
	for _, n := range s.others {
		r.Machine.Others += n / float64(len(s.others))
	}
	r.Noise = r.noise(load.Now().Cores)
	n := r.fastRounds()
	if n == 0 || n == len(r.Modes) {
		return
	}
	var all []*series
	for _, x := range s.series {
		all = append(all, &series{task: x.task, peer: x.peer, samples: x.fast})
	}
	r.Fast = &FastMode{Rounds: n}
	r.Fast.Limits, r.Fast.Results = figure(r.Ranks, all, nil)
}

// fastRounds is how many rounds were in the fast mode.
func (r *Report) fastRounds() (n int) {
	for _, round := range r.Modes {
		if round.Fast {
			n++
		}
	}
	return n
}

// figure computes the limits of the machine, and the peers' results in the order of all. It marks the results of series
// in early.
func figure(ranks int, all []*series, early map[*series]bool) (l Limits, results []Result) {
	machine := func(mode string, make func(*series) Stat) *Stat {
		x := find(all, PeerGo, func(t *task) bool { return t.mode == mode })
		if x == nil {
			return nil
		}
		s := make(x)
		return &s
	}
	l.AddTraffic = machine(modeAdd, func(x *series) Stat {
		return newStat(x.samples).rate(3 * float64(x.task.bytes()) * float64(ranks))
	})
	l.TCP = machine(modeTCP, func(x *series) Stat { return newStat(x.samples).rate(float64(x.task.bytes())) })
	l.Wake = machine(modeWake, func(x *series) Stat { return newStat(x.samples) })
	if a := l.AddTraffic; a != nil {
		l.Allreduce = a.Median / float64(2*ranks)
	}
	for _, x := range all {
		if x.task.machine() || len(x.samples) == 0 {
			continue
		}
		time, bytes := newStat(x.samples), float64(x.task.bytes())
		result := Result{Task: x.task.name, Bytes: x.task.bytes(), Peer: x.peer.name, Time: time,
			AlgBW: bytes / time.Median, Early: early[x], Ratios: map[string]float64{}}
		result.BusBW = result.AlgBW * float64(2*(ranks-1)) / float64(ranks)
		if l.Allreduce > 0 && ranks > 1 { // one rank alone moves nothing
			result.OfLimit = result.AlgBW / l.Allreduce
		}
		results = append(results, result)
	}
	for i := range results {
		for j := range results {
			a, b := &results[i], &results[j]
			if i != j && a.Task == b.Task && a.Bytes == b.Bytes {
				a.Ratios[b.Peer] = b.Time.Median / a.Time.Median
			}
		}
	}
	if m := result(results, peerOpenMPI, TaskAllreduce, mebibyte); m != nil && ranks == 2 {
		l.Mode = m.Time.Median / modeSeconds
	}
	return l, results
}

// result finds a figure; nil if there is none.
func result(all []Result, peer, task string, bytes int) *Result {
	for i := range all {
		if x := &all[i]; x.Peer == peer && x.Task == task && x.Bytes == bytes {
			return x
		}
	}
	return nil
}

// moreTime is the advice if the time was too short.
const moreTime = "give it more with --time, or less to do with --quick, --max-size or --peers"

// lost is the error of a run that could not measure everything.
func (r *Report) lost() error {
	var names []string
	for _, f := range r.Failed {
		names = append(names, f.Name)
	}
	switch {
	case len(names) > 0:
		return fmt.Errorf("%s failed", strings.Join(names, ", "))
	case r.Rounds == 0:
		return errors.New("time was over before the first round: " + moreTime)
	}
	return nil
}

func (r *Report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
