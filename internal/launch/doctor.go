package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/wire"
	"github.com/gorovod/gorovod/internal/tools/doctor"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
	"github.com/gorovod/gorovod/internal/tools/interpreter"
)

// patient is one examined host.
type patient struct {
	cluster.Host
	crew *remote.Crew // nil for this host
	key  []byte
}

// ask sends a question to the host, and stores the answer in to.
func (p *patient) ask(ctx context.Context, q wire.Query, to any) error {
	var text []byte
	if p.crew != nil {
		var err error
		if text, err = p.crew.Ask(ctx, q); err != nil {
			return err
		}
	} else {
		a, err := remote.Answer(ctx, &q, p.key)
		if err != nil {
			return err
		}
		if text, err = json.Marshal(a); err != nil {
			return err
		}
	}
	return json.Unmarshal(text, to)
}

// maxRounds is the most rounds of measuring pairs: with many hosts, only some pairs are measured.
const maxRounds = 31

// examine is gorovod doctor for hosts. It prints a report, and returns doctor.ErrUnwell if a job could not run.
func examine(o doctor.Cluster, w io.Writer) error {
	hosts := []placement.Host{{Name: "localhost", Slots: 1}}
	f := &flags.Flags{Hosts: o.Hosts, Hostfile: o.Hostfile, SSHPort: o.SSHPort, SSHIdentityFile: o.SSHIdentityFile,
		RemoteCommand: o.RemoteCommand, Command: []string{o.Python}}
	if o.Hosts != "" || o.Hostfile != "" {
		var err error
		if hosts, err = f.HostList(); err != nil {
			return doctor.Misuse{Err: err}
		}
	}
	if err := f.CheckSSHPort(); err != nil {
		return doctor.Misuse{Err: err}
	}
	if err := f.CheckFiles(); err != nil {
		return doctor.Misuse{Err: err}
	}
	key := make([]byte, 32)
	rand.Read(key)
	ctx, stop := interpreter.Interruptible()
	defer stop()
	r := f.RemoteShell()
	r.Timeout = time.Duration(*o.StartTimeout) * time.Second
	patients := admit(ctx, merge(hosts), r, key)
	defer func() {
		var wg sync.WaitGroup
		for _, p := range patients {
			if p.crew != nil {
				wg.Go(p.crew.Close)
			}
		}
		wg.Wait()
	}()
	look(ctx, patients, wire.Query{What: wire.InspectQuery, Python: o.Python, Named: o.Named})
	var pairs []cluster.Pair
	if !o.NoPairs {
		pairs = measurePairs(ctx, patients)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	var found []cluster.Host
	for _, p := range patients {
		found = append(found, p.Host)
	}
	well, err := cluster.Report(w, found, pairs, o.Variables, o.Columns)
	if err == nil && !well {
		err = doctor.ErrUnwell
	}
	return err
}

// admit connects to all hosts, at the same time.
func admit(ctx context.Context, hosts []placement.Host, r remote.Shell, key []byte) []*patient {
	local := placement.Locals(hosts)
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	patients := make([]*patient, len(hosts))
	var wg sync.WaitGroup
	calls := &remote.Calls{Shell: &r}
	for i, h := range hosts {
		p := &patient{Host: cluster.Host{Name: h.Name, Slots: h.Slots}, key: key}
		patients[i] = p
		if local[h.Name] {
			continue
		}
		wg.Go(func() {
			p.crew, p.Err = calls.Connect(ctx, wire.Assignment{Host: h.Name, Secret: hex.EncodeToString(key)})
		})
	}
	wg.Wait()
	return patients
}

// clockTries is how often a host is asked for its time. The quickest answer counts.
const clockTries = 3

// look collects the facts of all hosts, which answer the question.
func look(ctx context.Context, patients []*patient, question wire.Query) {
	env := placement.Exportable(os.Environ())
	others := placement.ForOthers(env)
	var wg sync.WaitGroup
	for _, p := range patients {
		if p.Err != nil {
			continue
		}
		q := question
		q.Env = env
		if p.crew != nil {
			q.Env = others
		}
		wg.Go(func() {
			if p.Err = p.ask(ctx, q, &p.Facts); p.Err != nil || p.crew == nil {
				return
			}
			for i := range clockTries {
				begin := time.Now()
				var then time.Time
				if p.Err = p.ask(ctx, wire.Query{What: wire.TimeQuery}, &then); p.Err != nil {
					return
				}
				if doubt := time.Since(begin) / 2; i == 0 || doubt < p.Doubt {
					p.Clock, p.Doubt = then.Sub(begin.Add(doubt)), doubt
				}
			}
		})
	}
	wg.Wait()
}

// measurePairs measures between all hosts that have answered, in rounds, so that
// no host is in two measurements at a time.
func measurePairs(ctx context.Context, patients []*patient) (pairs []cluster.Pair) {
	var index []int
	for i, p := range patients {
		if p.Err == nil {
			index = append(index, i)
		}
	}
	var mu sync.Mutex
	for _, round := range cluster.Rounds(len(index), maxRounds) {
		var wg sync.WaitGroup
		for _, pair := range round {
			from, to := index[pair[0]], index[pair[1]]
			wg.Go(func() {
				// Both ways: a firewall may let one direction pass.
				for _, way := range [][2]int{{from, to}, {to, from}} {
					path, err := between(ctx, patients[way[0]], patients[way[1]])
					mu.Lock()
					pairs = append(pairs, cluster.Pair{From: way[0], To: way[1], Path: path, Err: err})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	return pairs
}

// between measures one way, to a port that the kernel chooses, as for ranks.
func between(ctx context.Context, from, to *patient) (path cluster.Path, err error) {
	var port int
	if err := to.ask(ctx, wire.Query{What: wire.ListenQuery}, &port); err != nil {
		return path, err
	}
	var addresses []string
	for _, a := range to.Facts.Addresses {
		addresses = append(addresses, net.JoinHostPort(a.Address, strconv.Itoa(port)))
	}
	err = from.ask(ctx, wire.Query{What: wire.ProbeQuery, Addresses: addresses}, &path)
	return path, err
}

// merge makes one host of those that have two names.
func merge(hosts []placement.Host) (merged []placement.Host) {
	index := map[string]int{}
	for _, h := range hosts {
		if i, ok := index[h.Name]; ok {
			merged[i].Slots += h.Slots
			continue
		}
		index[h.Name] = len(merged)
		merged = append(merged, h)
	}
	return merged
}

// runDoctor is the subcommand.
func runDoctor(args []string) int {
	return doctor.Main("gorovod doctor", args, os.Environ(), os.Stdout, os.Stderr, examine)
}
