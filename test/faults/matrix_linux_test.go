// Package faults makes ranks of real jobs fail, by each kind of fault in each phase of
// a job's life. It measures how long it takes until every other rank gets the reason.
// A short form runs with the other tests. FAULTS_PER_CELL=5 (make faults) fills the
// whole table, and writes it into docs/reliability.md.
package faults

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/netns"
)

// kind is a way to fail.
type kind struct {
	action, text string
	bound        time.Duration // from the fault until the last rank has the reason
	harmless     bool          // the job may also succeed, with right results
	// what a reason must contain if it does not name the rank that failed; empty: it must name the rank
	cause string
	wires []string // the transports that the fault concerns; nil: all
}

// heartbeat is the shortest possible heartbeat, and startTimeout limits the start. Each bound is such a limit and
// the time until a rank waits, which is short here.
const (
	heartbeat    = 5 * time.Second
	startTimeout = 5 * time.Second
	// lockLimit is the longest wait for a lock whose holder is gone.
	lockLimit = 5 * time.Second
	slack     = time.Second
)

var kinds = []kind{
	{action: "kill", text: "SIGKILL", bound: time.Second},
	{action: "exit", text: "exit", bound: time.Second},
	{action: "panic", text: "panic", bound: time.Second},
	{action: "stop", text: "SIGSTOP", bound: heartbeat + 2*slack},
	{action: "emfile", text: "no descriptors left", bound: startTimeout + 2*slack, harmless: true,
		cause: "too many open files|descriptor"},
	{action: "corrupt", text: "corrupt segment", bound: lockLimit + 2*slack, harmless: true,
		wires: []string{"shm", "hosts"},
		cause: `corrupt|lock for seconds|protocol error|says of itself|process sets? |shut ?down|Horovod has been|negotiat|decod|start timeout|waited`},
	{action: "cut", text: "cut link", bound: heartbeat + 2*slack, wires: []string{"cut"}},
}

// phases are the points of package failpoint, in the order of a job's life. Each has the
// number of times that a rank passes it before the fault.
var phases = []struct {
	point, text string
	most        int
	wires       []string // the transports that have the point; nil: all
}{
	{"rendezvous", "rendezvous", 1, nil},
	{"attach", "attach", 1, nil},
	{"measure", "measuring the links between hosts", 2, []string{"hosts", "cut"}},
	{"ahead", "between data ahead and its result", 20, []string{"tcp", "hosts", "cut"}},
	{"negotiated", "between negotiate and execute", 40, nil},
	{"pack", "mid-pack", 60, nil},
	{"collective", "mid-allreduce", 60, nil},
	{"broadcast", "mid-broadcast (state sync)", 40, nil},
	{"set", "set add", 4, nil},
	{"shutdown", "shutdown", 1, nil},
}

const ranks = 4

// cell is a cell of the table: a kind of fault in a phase.
type cell struct {
	k     *kind
	phase int
}

// injection is one job with a fault.
type injection struct {
	cell
	wire   string
	victim int
	nth    int
	seed   uint64
}

func (i injection) String() string {
	return fmt.Sprintf("%s %s over %s, rank %d, passage %d, seed %d", i.k.action, phases[i.phase].point, i.wire,
		i.victim, i.nth, i.seed)
}

// binaries builds the programs once, and returns their folder.
var binaries = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "gorovod-faults-"); err != nil {
		return "", err
	}
	for _, b := range [][]string{
		{"-tags", "failpoints", "-o", filepath.Join(dir, "rank"), "./rank"},
		{"-o", filepath.Join(dir, "gorovod"), "../../cmd/gorovod"},
	} {
		c := exec.Command("go", append([]string{"build"}, b...)...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", c, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		return // the time-outs take too long for -short
	}
	code := m.Run()
	if dir, err := binaries(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// Every surviving rank learns within the bound why the job has ended.
func TestFaults(t *testing.T) {
	perCell, _ := strconv.Atoi(os.Getenv("FAULTS_PER_CELL"))
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FAULTS_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("FAULTS_SEED=%d", seed)
	only, phase := os.Getenv("FAULTS_ONLY"), os.Getenv("FAULTS_PHASE") // of kinds, and of points
	r := rand.New(rand.NewPCG(seed, 2))
	table := newTable()
	injections := make([][]injection, len(kinds))
	for k := range kinds {
		for p := range phases {
			n := perCell
			if phase != "" && phase != phases[p].point {
				n = 0
			} else if perCell == 0 && p == int(seed+uint64(k))%len(phases) {
				n = 1 // the short form has one cell of each kind, over any wire
			}
			wire := r.IntN(len(wires))
			for i := range n {
				injections[k] = append(injections[k], draw(r, cell{&kinds[k], p}, wire+i))
			}
		}
	}
	if _, err := binaries(); err != nil {
		t.Fatal(err)
	}
	t.Run("of", func(t *testing.T) {
		for k := range kinds {
			if only != "" && only != kinds[k].action {
				continue
			}
			t.Run(kinds[k].action, func(t *testing.T) {
				t.Parallel() // most of the time is spent in waiting for a limit
				for _, inj := range injections[k] {
					t.Run(phases[inj.phase].point, func(t *testing.T) { run(t, table, inj) })
				}
			})
		}
	})
	if perCell > 0 && only == "" && phase == "" && !t.Failed() {
		if err := table.write("../../docs/reliability.md"); err != nil {
			t.Error(err)
		}
	}
	t.Logf("\n%s", table)
}

// wires are the transports of the jobs, if their kind of fault has no other ones.
var wires = []string{"shm", "tcp", "hosts"}

// draw chooses at random what the cell does not fix: the transport, the victim, and so on of its i-th injection.
func draw(r *rand.Rand, c cell, i int) injection {
	of := c.k.wires
	if of == nil {
		of = wires
	}
	if has := phases[c.phase].wires; has != nil {
		of = slices.DeleteFunc(slices.Clone(of), func(w string) bool { return !slices.Contains(has, w) })
	}
	inj := injection{cell: c, wire: of[i%len(of)], victim: r.IntN(ranks), nth: 1 + r.IntN(phases[c.phase].most),
		seed: r.Uint64()}
	if phases[c.phase].point == "set" && inj.victim == 3 {
		inj.victim = 0 // any rank: also rank 3, which is not a member of the set, passes the point
	}
	if inj.wire == "cut" {
		inj.victim = 2 + r.IntN(2) // the cut is made on the second host
	}
	return inj
}

// run runs one injection and notes its outcome.
func run(t *testing.T, table *table, inj injection) {
	took, o, err := inject(t, inj)
	if err == nil && took > inj.k.bound {
		err = fmt.Errorf("took %v, the bound is %v: %s", took, inj.k.bound, strings.Join(o.texts, " / "))
	}
	if err != nil {
		t.Errorf("%v: %v", inj, err)
		table.failed(inj.cell)
		return
	}
	table.add(inj.cell, took)
	t.Logf("%v: %v %s", inj, took, o.summary())
}

// longest is the time after which a job that has not ended counts as hung.
const longest = 40 * time.Second

// inject runs a job with a fault. It returns the time from the fault until the last rank
// had the reason, 0 if the job succeeded nevertheless.
func inject(t *testing.T, inj injection) (time.Duration, *outcome, error) {
	dir, err := binaries()
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	env := append(os.Environ(), "HOROVOD_DYNAMIC_PROCESS_SETS=1",
		fmt.Sprintf("GOROVOD_FAILPOINT=%s=%s#%d", phases[inj.phase].point, inj.k.action, inj.nth),
		fmt.Sprintf("FAULT_RANK=%d", inj.victim), fmt.Sprintf("GOROVOD_SEED=%d", inj.seed),
		fmt.Sprintf("GOROVOD_HEARTBEAT_SECONDS=%g", heartbeat.Seconds()), fmt.Sprintf("HOROVOD_GLOO_TIMEOUT_SECONDS=%g",
			startTimeout.Seconds()),
		"HOROVOD_STALL_CHECK_TIME_SECONDS=2")
	hosts := fmt.Sprintf("localhost:%d", ranks)
	switch inj.wire {
	case "tcp":
		env = append(env, "GOROVOD_TRANSPORT=tcp")
	case "hosts":
		hosts = "localhost:2,127.0.0.1:2" // the ranks take these for two hosts
	}
	var commands []*exec.Cmd
	if inj.wire == "cut" {
		if commands, err = onTwoHosts(ctx, t, dir, env); err != nil {
			return 0, nil, err
		}
	} else {
		c := exec.CommandContext(ctx, filepath.Join(dir, "gorovod"), "run", "-H", hosts, "-np", strconv.Itoa(ranks),
			filepath.Join(dir, "rank"))
		c.Env = env
		commands = []*exec.Cmd{c}
	}
	lines, end, err := start(commands)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	o := &outcome{told: map[int]time.Time{}, done: map[int]bool{}}
	for o.fault.IsZero() || !o.complete(inj) {
		line, open := <-lines
		if !open {
			break
		}
		o.take(line)
	}
	took, err := o.judge(inj)
	return took, o, err
}

// start starts the commands, and sends their lines one by one. end kills the commands that still run.
func start(commands []*exec.Cmd) (lines <-chan string, end func(), err error) {
	out := make(chan string, 1000)
	var reading sync.WaitGroup
	for _, c := range commands {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		c.Stdout, c.Stderr = w, w
		if c.SysProcAttr == nil {
			c.SysProcAttr = &syscall.SysProcAttr{}
		}
		c.SysProcAttr.Pdeathsig = syscall.SIGKILL
		err = c.Start()
		w.Close()
		if err != nil {
			return nil, nil, err
		}
		prefix := ""
		for _, v := range c.Env { // as the launcher does
			if rank, ok := strings.CutPrefix(v, "HOROVOD_RANK="); ok {
				prefix = "[" + rank + "]<stdout>:"
			}
		}
		reading.Go(func() { read(r, prefix, out) })
	}
	go func() { reading.Wait(); close(out) }()
	return out, func() {
		for _, c := range commands {
			c.Process.Signal(syscall.SIGCONT)
			c.Process.Kill() // then a launcher's supervisors end their ranks
			c.Wait()
		}
		for range out { // until all lines have come: then no process is left
		}
	}, nil
}

func read(r io.ReadCloser, prefix string, out chan<- string) {
	defer r.Close()
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out <- prefix + s.Text()
	}
}

// onTwoHosts prepares ranks 0 and 1 on one host, 2 and 3 on another, and the rendezvous on
// the first. The failpoint cuts the wire on the second host, in the outgoing direction only.
func onTwoHosts(ctx context.Context, t *testing.T, dir string, env []string) ([]*exec.Cmd, error) {
	hosts := netns.Two(t, "")
	const secret, port = "5ec8e75ec8e75ec8e75ec8e75ec8e75ec8e7", "7423"
	server := hosts[0].Command(ctx, filepath.Join(dir, "gorovod"), "rendezvous", "-n", strconv.Itoa(ranks), "--listen",
		hosts[0].Address+":"+port)
	server.Env = append(os.Environ(), "HOROVOD_SECRET_KEY="+secret)
	out, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // the rendezvous serves from now on
		return nil, fmt.Errorf("the rendezvous: %w", err)
	}
	var commands []*exec.Cmd
	for r := range ranks {
		c := hosts[r/2].Command(ctx, filepath.Join(dir, "rank"))
		c.Env = append(env[:len(env):len(env)], fmt.Sprintf("HOROVOD_RANK=%d", r),
			fmt.Sprintf("HOROVOD_SIZE=%d", ranks), fmt.Sprintf("HOROVOD_LOCAL_RANK=%d", r%2), "HOROVOD_LOCAL_SIZE=2",
			fmt.Sprintf("HOROVOD_CROSS_RANK=%d", r/2), "HOROVOD_CROSS_SIZE=2",
			"HOROVOD_GLOO_RENDEZVOUS_ADDR="+hosts[0].Address, "HOROVOD_GLOO_RENDEZVOUS_PORT="+port,
			"HOROVOD_SECRET_KEY="+secret, fmt.Sprintf("HOROVOD_HOSTNAME=h%d", r/2),
			fmt.Sprintf("GOROVOD_CUT=ip neighbour replace %s lladdr 02:00:00:00:00:99 dev %s nud permanent",
				hosts[0].Address, netns.Interface))
		commands = append(commands, c)
	}
	return commands, nil
}

// outcome is what the lines of a job say.
type outcome struct {
	fault time.Time
	told  map[int]time.Time
	texts []string
	done  map[int]bool
	all   []string
	what  string // the fault has done
	wrong bool   // results were
}

var (
	faultLine = regexp.MustCompile(`failpoint \S+ \S+ (\d+) ?(.*)`)
	toldLine  = regexp.MustCompile(`^\[(\d+)\]<stdout>:TOLD (\d+) (.*)`)
	doneLine  = regexp.MustCompile(`^\[(\d+)\]<stdout>:DONE`)
)

func (o *outcome) take(line string) {
	o.all = append(o.all, line)
	if m := toldLine.FindStringSubmatch(line); m != nil {
		rank, _ := strconv.Atoi(m[1])
		o.told[rank] = nanoseconds(m[2])
		o.texts = append(o.texts, m[3])
	} else if m := doneLine.FindStringSubmatch(line); m != nil {
		rank, _ := strconv.Atoi(m[1])
		o.done[rank] = true
	} else if m := faultLine.FindStringSubmatch(line); m != nil && o.fault.IsZero() {
		o.fault, o.what = nanoseconds(m[1]), m[2]
	}
	o.wrong = o.wrong || strings.HasSuffix(line, ":WRONG")
}

// summary describes the outcome in a line.
func (o *outcome) summary() string {
	text := o.what
	for _, line := range o.all {
		if strings.Contains(line, "TCP is used instead") {
			text += "; TCP instead"
			break
		}
	}
	if len(o.texts) == 0 {
		return text + "; none"
	}
	return text + "; " + o.texts[0]
}

func nanoseconds(text string) time.Time {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, n)
}

// complete reports whether every rank but the victim has ended.
func (o *outcome) complete(inj injection) bool {
	for r := range ranks {
		if _, told := o.told[r]; r != inj.victim && !told && !o.done[r] {
			return false
		}
	}
	return true
}

// judge returns the time until the last rank had the reason, and an error if the outcome is wrong.
func (o *outcome) judge(inj injection) (time.Duration, error) {
	wrong := func(format string, args ...any) (time.Duration, error) {
		return 0, fmt.Errorf(format+"\n%s", append(args, strings.Join(o.all, "\n"))...)
	}
	if !o.complete(inj) {
		return wrong("not all ranks were told")
	}
	if o.fault.IsZero() {
		return wrong("the fault was never injected")
	}
	var took time.Duration
	for r, at := range o.told {
		if r != inj.victim {
			took = max(took, at.Sub(o.fault))
		}
	}
	point := phases[inj.phase].point
	if len(o.done) > 0 && point != "shutdown" && !inj.k.harmless {
		return wrong("a job with a fault came to its end")
	}
	for _, line := range o.all {
		if strings.Contains(line, "fatal error:") || strings.Contains(line, "SIGSEGV") || strings.Contains(line,
			"SIGBUS") {
			return wrong("a crash")
		}
	}
	if o.wrong {
		return wrong("a job came to its end with wrong results")
	}
	if err := o.attributed(inj); err != nil {
		return wrong("%v", err)
	}
	return took, nil
}

// view is the part of a reason that follows the cause while the engine works: when which rank
// noticed it, and what that rank was doing.
var view = regexp.MustCompile(
	` \[[0-9:. -]+ UTC, seen by rank \d on host \S+ \(pid \d+\): ([A-Z_]+ "[^"]*" (was|waited) |nothing was pending)`)

// attributed checks that each reason names the rank that has failed or, if the kind has one, the cause. While the
// engine works, each reason also says when and during what, and, unless a link is cut, all are the same.
func (o *outcome) attributed(inj injection) error {
	point := phases[inj.phase].point
	starting := point == "rendezvous" || point == "attach"
	who := fmt.Sprintf(
		`rank %d( on host \S+)? \(pid \d+\)|rank %[1]d on host|cannot connect to rank %[1]d|rank %[1]d of %[2]d \(joined from host \S+, pid \d+|rank %[1]d \(HOROVOD_`, inj.victim, ranks)
	if inj.k.action == "cut" { // each side names the other
		who = `rank \d on host h\d \(pid \d+\)|(the|a) launcher|rank \d of 4 \(|rank \d cannot connect to rank \d`
	}
	if inj.k.cause != "" {
		who += "|" + inj.k.cause
	}
	for _, text := range o.texts {
		if !regexp.MustCompile(who).MatchString(text) {
			return fmt.Errorf("a cause without a name: %q", text)
		}
		if !starting && point != "shutdown" && !view.MatchString(text) {
			return fmt.Errorf("nothing tells when, and amid what: %q", text)
		}
		if !starting && point != "shutdown" && inj.k.action != "cut" && text != o.texts[0] {
			return fmt.Errorf("texts differ: %q and %q", text, o.texts[0])
		}
	}
	return nil
}
