package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/tools/doctor"
	"github.com/gorovod/gorovod/internal/tools/doctor/cluster"
	"github.com/gorovod/gorovod/internal/tools/interpreter"
)

// query is a question of gorovod doctor to an agent.
type query struct {
	What      string
	Python    string   `json:",omitempty"` // inspect: the interpreter to ask, looked up as a rank's command is
	Named     bool     `json:",omitempty"` // inspect: whether the user has named it
	Env       []string `json:",omitempty"` // inspect: what a rank there gets of the launcher's environment
	Addresses []string `json:",omitempty"` // probe: where the other host may be
	Signal    int      `json:",omitempty"` // forward: the signal
}

// The questions.
const (
	inspectQuery = "inspect" // the answer is a cluster.Facts
	timeQuery    = "time"    // the answer is a time.Time
	listenQuery  = "listen"  // the answer is a port, which waits for one probe
	probeQuery   = "probe"   // the answer is a cluster.Path
	forwardQuery = "forward" // the answer is a delivery
)

// answer answers a question for this host. key is the secret of this examination. It blocks for a bounded time.
func (q *query) answer(ctx context.Context, key []byte) (any, error) {
	switch q.What {
	case inspectQuery:
		env := environment.Overlay(withoutSecrets(os.Environ()), q.Env)
		path, _, err := spawn.FindCommand(q.Python, environment.Get(env, "PATH"))
		if err != nil {
			path = q.Python // there is no such interpreter; doctor then reports none
		}
		facts := cluster.Inspect(ctx, path, env)
		facts.Asked, facts.Named = q.Python, q.Named
		return facts, nil
	case timeQuery:
		return time.Now(), nil
	case listenQuery:
		l, err := cluster.Listen(key)
		if err != nil {
			return nil, err
		}
		go l.Serve()
		return l.Port(), nil
	case probeQuery:
		return cluster.Probe(ctx, key, q.Addresses)
	}
	return nil, fmt.Errorf("nobody knows how to %s", q.What)
}

// patient is one examined host.
type patient struct {
	cluster.Host
	crew *remoteCrew // nil for this host
	key  []byte
}

// ask sends a question to the host, and stores the answer.
func (p *patient) ask(ctx context.Context, q query, answer any) error {
	var text []byte
	if p.crew != nil {
		var err error
		if text, err = p.crew.ask(ctx, q); err != nil {
			return err
		}
	} else {
		a, err := q.answer(ctx, p.key)
		if err != nil {
			return err
		}
		if text, err = json.Marshal(a); err != nil {
			return err
		}
	}
	return json.Unmarshal(text, answer)
}

// maxRounds is the most rounds of measuring pairs: with many hosts, only some pairs are measured.
const maxRounds = 31

// examine is gorovod doctor for hosts. It prints a report, and returns doctor.ErrUnwell if a job could not run.
func examine(o doctor.Cluster, w io.Writer) error {
	hosts := []Host{{"localhost", 1}}
	f := &flags{Hosts: o.Hosts, Hostfile: o.Hostfile, SSHPort: o.SSHPort, SSHIdentityFile: o.SSHIdentityFile,
		RemoteCommand: o.RemoteCommand, command: []string{o.Python}}
	if o.Hosts != "" || o.Hostfile != "" {
		var err error
		if hosts, err = f.hosts(); err != nil {
			return doctor.Misuse{Err: err}
		}
	}
	if err := f.checkSSHPort(); err != nil {
		return doctor.Misuse{Err: err}
	}
	if err := f.checkFiles(); err != nil {
		return doctor.Misuse{Err: err}
	}
	key := make([]byte, 32)
	rand.Read(key)
	ctx, stop := interpreter.Interruptible()
	defer stop()
	r := f.remoteShell()
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
	look(ctx, patients, query{What: inspectQuery, Python: o.Python, Named: o.Named})
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
func admit(ctx context.Context, hosts []Host, r remoteShell, key []byte) []*patient {
	local := locals(hosts)
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	patients := make([]*patient, len(hosts))
	var wg sync.WaitGroup
	calls := &calls{shell: &r}
	for i, h := range hosts {
		p := &patient{Host: cluster.Host{Name: h.Name, Slots: h.Slots}, key: key}
		patients[i] = p
		if local[h.Name] {
			continue
		}
		wg.Go(func() {
			p.crew, p.Err = calls.connect(ctx, assignment{Host: h.Name, Secret: hex.EncodeToString(key)})
		})
	}
	wg.Wait()
	return patients
}

// clockTries is how often a host is asked for its time. The quickest answer counts.
const clockTries = 3

// look collects the facts of all hosts, which answer the question.
func look(ctx context.Context, patients []*patient, question query) {
	env := exportable(os.Environ())
	others := forOthers(env)
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
				if p.Err = p.ask(ctx, query{What: timeQuery}, &then); p.Err != nil {
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
	if err := to.ask(ctx, query{What: listenQuery}, &port); err != nil {
		return path, err
	}
	var addresses []string
	for _, a := range to.Facts.Addresses {
		addresses = append(addresses, net.JoinHostPort(a.Address, strconv.Itoa(port)))
	}
	err = from.ask(ctx, query{What: probeQuery, Addresses: addresses}, &path)
	return path, err
}

// merge makes one host of those that have two names.
func merge(hosts []Host) (merged []Host) {
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
