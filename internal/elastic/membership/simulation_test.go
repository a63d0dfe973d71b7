package membership

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSimulation plays jobs at random: workers start, train, commit, die, stop and go on; hosts come, go and are lost.
// After each step the invariants of check must hold. Once the trouble is over the job must come together.
func TestSimulation(t *testing.T) {
	for seed := range uint64(400) {
		sim := newSimulation(seed)
		for range 300 {
			sim.step()
			if sim.stop != nil {
				break
			}
		}
		sim.calm()
		if sim.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, sim.failure, sim.log)
		}
	}
}

// process is a worker's process, as the driver would see it.
type process struct {
	id         int
	host       string
	slot       int
	registered bool
	epoch      uint64 // the epoch in which it trains; 0: none
	broken     bool   // its epoch has ended, and it has not noticed yet
	asked      bool   // it was asked to come together
	veteran    bool   // it has been in an epoch
	frozen     bool
	dismissed  bool
	doomed     bool // it was ordered to end
	commit     int64
}

type simulation struct {
	*rand.Rand
	s         *State
	c         Config
	now       time.Duration
	offered   []Host
	processes map[int]*process
	epoch     *Form
	newest    int64 // the newest commit of any living process
	stop      *Stop
	failure   string
	log       string
}

func newSimulation(seed uint64) *simulation {
	r := rand.New(rand.NewPCG(seed, 7))
	c := Config{NP: 1 + r.IntN(4), ResetLimit: -1, Timeout: 60 * time.Second, Patience: 5 * time.Second,
		Cooldown: Cooldown{time.Second, 20 * time.Second}, WholeHosts: r.IntN(4) == 0, Resumable: r.IntN(4) == 0,
		Random: r.Float64}
	c.Min = 1 + r.IntN(c.NP)
	if r.IntN(2) == 0 {
		c.Max = c.NP + r.IntN(4)
	}
	sim := &simulation{Rand: r, c: c, s: New(c), processes: map[int]*process{}}
	sim.note("%+v", c)
	sim.discover()
	return sim
}

func (sim *simulation) note(format string, args ...any) {
	sim.log += fmt.Sprintf("%6.1f ", sim.now.Seconds()) + fmt.Sprintf(format, args...) + "\n"
}

func (sim *simulation) fail(format string, args ...any) {
	if sim.failure == "" {
		sim.failure = fmt.Sprintf(format, args...)
	}
}

func (sim *simulation) discover() {
	sim.offered = nil
	for _, name := range []string{"a", "b", "c"} {
		if n := sim.IntN(5); n > 0 {
			sim.offered = append(sim.offered, Host{name, n})
		}
	}
	sim.note("hosts %v", sim.offered)
	sim.do(sim.s.Hosts(sim.now, sim.offered))
}

// one picks a process for which f is true.
func (sim *simulation) one(f func(p *process) bool) *process {
	var fit []*process
	for id := range sim.s.started {
		if p := sim.processes[id]; p != nil && f(p) {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[sim.IntN(len(fit))]
}

func (sim *simulation) step() {
	sim.now += time.Duration(sim.ExpFloat64() * float64(300*time.Millisecond))
	awake := func(p *process) bool { return !p.frozen && !p.dismissed && !p.doomed }
	switch k := sim.IntN(100); {
	case k < 40:
		sim.live(sim.one(awake))
	case k < 60: // all members commit, but some may be cut off before
		for _, p := range sim.processes {
			if p.epoch == sim.s.Epoch() && p.epoch > 0 && !p.broken && !p.frozen {
				p.commit = sim.newest + 1
				if sim.IntN(8) == 0 {
					break
				}
			}
		}
		for _, p := range sim.processes {
			sim.newest = max(sim.newest, p.commit)
		}
		if sim.c.Resumable && sim.newest > 0 {
			sim.s.Saved(sim.newest)
		}
	case k < 70:
		if p := sim.one(func(p *process) bool { return true }); p != nil {
			sim.die(p)
		}
	case k < 74:
		if p := sim.one(awake); p != nil {
			sim.note("worker %d is frozen", p.id)
			p.frozen = true
			sim.breakEpoch() // the heartbeats tell the others
		}
	case k < 78:
		if p := sim.one(func(p *process) bool { return p.frozen }); p != nil {
			sim.note("worker %d goes on", p.id)
			p.frozen, p.broken = false, true
		}
	case k < 80:
		sim.discover()
	case k < 81 && len(sim.offered) > 1:
		h := sim.offered[sim.IntN(len(sim.offered))].Name
		sim.note("host %s is lost", h)
		for id, p := range sim.processes {
			if p.host == h {
				delete(sim.processes, id)
				sim.breakEpoch()
			}
		}
		sim.do(sim.s.HostLost(sim.now, h))
	case k < 84:
		if p := sim.one(func(p *process) bool { return p.doomed || p.dismissed }); p != nil {
			sim.end(p, p.doomed)
		}
	default:
		sim.tick()
	}
	sim.check()
}

// tick lets time pass. The next tick must lie in the future, or the driver would spin.
func (sim *simulation) tick() {
	sim.do(sim.s.Tick(sim.now))
	if next, ok := sim.s.Next(); ok && next <= sim.now {
		sim.fail("the next tick is at %v", next)
	}
}

// live lets a process take its next step.
func (sim *simulation) live(p *process) {
	switch {
	case p == nil:
	case p.registered:
	case p.epoch == 0 || p.broken || p.asked:
		if p.epoch == sim.s.Epoch() && p.epoch > 0 {
			sim.breakEpoch() // its leaving fails the others' operations
		}
		p.registered, p.broken, p.asked, p.epoch = true, false, false, 0
		sim.note("worker %d is ready with commit %d", p.id, p.commit)
		sim.do(sim.s.Ready(sim.now, p.id, Registration{Commit: p.commit}))
	}
}

func (sim *simulation) breakEpoch() {
	for _, p := range sim.processes {
		if p.epoch > 0 {
			p.broken = true
		}
	}
}

func (sim *simulation) die(p *process) {
	if p.epoch == sim.s.Epoch() && p.epoch > 0 {
		sim.breakEpoch()
	}
	sim.end(p, true)
}

func (sim *simulation) end(p *process, failed bool) {
	delete(sim.processes, p.id)
	sim.note("worker %d has ended, failed: %v", p.id, failed)
	sim.do(sim.s.Ended(sim.now, p.id, failed))
}

// do carries actions out, and checks each.
func (sim *simulation) do(actions []Action) {
	for _, a := range actions {
		sim.note("  %v", a)
		if sim.stop != nil {
			sim.fail("after stop: %v", a)
		}
		switch a := a.(type) {
		case Start:
			for _, p := range sim.processes {
				if p.host == a.Host && p.slot == a.Slot {
					sim.fail("%v, where worker %d is", a, p.id)
				}
			}
			if sim.c.Max > 0 && sim.s.staying() > sim.c.Max {
				sim.fail("%v, which makes %d", a, sim.s.staying())
			}
			sim.processes[a.Worker] = &process{id: a.Worker, host: a.Host, slot: a.Slot, commit: -1}
		case End:
			sim.known(a.Worker, a).doomed = true
			if sim.processes[a.Worker].epoch > 0 {
				sim.breakEpoch()
			}
		case Dismiss:
			p := sim.processes[a.Worker]
			if p == nil {
				break
			}
			p.dismissed = true
			if p.veteran && !p.doomed &&
				sim.one(func(o *process) bool { return o != p && o.veteran && !o.doomed && !o.dismissed }) == nil {
				sim.fail("%v, the last one that has the state", a)
			}
		case Ping:
			if p := sim.known(a.Worker, a); !p.frozen {
				sim.s.Heard(sim.now, a.Worker)
			}
		case Notify:
			for _, id := range a.Workers {
				sim.known(id, a).asked = true
			}
		case Form:
			sim.form(a)
		case Stop:
			sim.stop = &a
		}
	}
}

func (sim *simulation) known(id int, a Action) *process {
	if p := sim.processes[id]; p != nil {
		return p
	}
	sim.fail("%v: there is no such worker", a)
	return &process{}
}

func (sim *simulation) form(f Form) {
	need := sim.c.Min
	if f.Epoch == 1 {
		need = sim.c.NP
	}
	n := 0
	for _, p := range f.Places {
		if w := sim.s.worker(p.Worker); w != nil && !sim.s.leaving(w) {
			n++
		}
	}
	if n < need || (sim.c.Max > 0 && n > sim.c.Max) {
		sim.fail("%v: %d members that stay, from %d to %d are allowed", f, n, need, sim.c.Max)
	}
	if sim.epoch != nil && f.Epoch != sim.epoch.Epoch+1 {
		sim.fail("%v follows epoch %d", f, sim.epoch.Epoch)
	}
	local, cross, last := map[string]int{}, map[int]int{}, ""
	source := f.Places[0].Worker
	for i, p := range f.Places {
		w := sim.known(p.Worker, f)
		if !w.registered || w.doomed || w.dismissed {
			sim.fail("%v: worker %d does not wait for a place", f, p.Worker)
		}
		if w.host != p.Host || p.Rank != i || p.Size != len(f.Places) || p.LocalRank != local[p.Host] ||
			p.CrossRank != cross[p.LocalRank] {
			sim.fail("%v: place %+v", f, p)
		}
		if p.Host != last && local[p.Host] > 0 {
			sim.fail("%v: host %s is in two parts", f, p.Host)
		}
		last = p.Host
		local[p.Host]++
		cross[p.LocalRank]++
		if s := sim.processes[source]; s != nil && (w.commit > s.commit) {
			sim.fail("%v: rank 0 has commit %d, worker %d has %d", f, s.commit, w.id, w.commit)
		}
	}
	for _, p := range f.Places {
		if p.LocalSize != local[p.Host] || p.CrossSize != cross[p.LocalRank] {
			sim.fail("%v: place %+v", f, p)
		}
		w := sim.known(p.Worker, f)
		w.registered, w.veteran, w.epoch, w.commit = false, true, f.Epoch, sim.processes[source].commit
	}
	sim.epoch = &f
}

// check compares the State's view with the simulation's.
func (sim *simulation) check() {
	for _, p := range sim.processes {
		if !p.doomed && !p.dismissed && sim.s.worker(p.id) == nil {
			sim.fail("worker %d lives and is not known", p.id)
		}
	}
}

// calm ends the trouble. The job must come together in bounded time, with all processes that can take part.
func (sim *simulation) calm() {
	if sim.stop != nil {
		return
	}
	sim.note("the trouble is over")
	sim.offered = []Host{{"a", 4}, {"b", 4}, {"c", 4}}
	sim.do(sim.s.Hosts(sim.now, sim.offered))
	for range 400 {
		sim.now += 250 * time.Millisecond
		for id := range sim.s.started {
			switch p := sim.processes[id]; {
			case p == nil || sim.stop != nil:
			case p.doomed || p.dismissed:
				sim.end(p, p.doomed)
			case p.frozen: // it stays so for ever
			default:
				sim.live(p)
			}
		}
		if sim.stop == nil {
			sim.tick()
		}
		sim.check()
	}
	if sim.stop != nil {
		if living := sim.one(
			func(p *process) bool { return !p.doomed && !p.dismissed && p.commit >= 0 && !p.frozen }); living != nil &&
			sim.s.epoch > 0 {
			sim.fail("stopped although worker %d lives and has the state: %v", living.id, sim.stop)
		}
		return
	}
	want := 12
	if sim.c.Max > 0 {
		want = sim.c.Max
	}
	working := 0
	for _, p := range sim.processes {
		if p.epoch == sim.s.Epoch() && p.epoch > 0 {
			working++
		}
	}
	// A frozen worker keeps its slot, and keeps its place until others wait for it.
	for _, p := range sim.processes {
		if p.frozen {
			want--
		}
	}
	if working < want {
		sim.fail("%d workers train at the end, %d could", working, want)
	}
}
