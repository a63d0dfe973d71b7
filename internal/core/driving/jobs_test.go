package driving

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestJobs gives the policy the events of real jobs (testdata/jobs, see its README), and compares its answers with the
// actions of the drivers in those jobs.
func TestJobs(t *testing.T) {
	paths, err := filepath.Glob("testdata/jobs/*/rank*")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		rel, _ := filepath.Rel("testdata/jobs", path)
		t.Run(rel, func(t *testing.T) { replay(t, path) })
	}
}

// note is a line of a recorded job.
type note struct {
	actor, event, actions string
	facts                 []string
	times                 int
	last                  string // action
	mood                  Mood
}

func (n *note) has(fact string) bool { return slices.Contains(n.facts, fact) }

// after is the value of a fact, or of an action, that is a time.
func after(t *testing.T, text, prefix string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(strings.TrimPrefix(text, prefix))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseNote(t *testing.T, line string) *note {
	t.Helper()
	_, rest, _ := strings.Cut(line, " ")
	actor, rest, ok := strings.Cut(rest, ": ")
	event, actions, arrow := strings.Cut(rest, " ->")
	if !ok || !arrow {
		t.Fatalf("no note: %s", line)
	}
	n := &note{actor: actor, actions: strings.TrimSpace(actions)}
	words := strings.Fields(event)
	n.event, n.facts = words[0], words[1:]
	n.mood = Mood{Lazy: n.has("lazy"), Spinning: n.has("spinning")}
	for _, a := range strings.Split(n.actions, ", ") {
		times := 1
		if at := strings.LastIndex(a, " x"); at >= 0 {
			times, _ = strconv.Atoi(a[at+2:])
			a = a[:at]
		}
		n.times += times
		n.last = a
	}
	return n
}

// tally is how a note lists actions.
type tally struct {
	order []string
	times map[string]int
}

func (y *tally) add(a Action) {
	if y.times == nil {
		y.times = make(map[string]int)
	}
	if y.times[a.String()]++; y.times[a.String()] == 1 {
		y.order = append(y.order, a.String())
	}
}

func (y *tally) String() string {
	var all []string
	for _, a := range y.order {
		if y.times[a] > 1 {
			a += fmt.Sprint(" x", y.times[a])
		}
		all = append(all, a)
	}
	return strings.Join(all, ", ")
}

// replayed is the policy's state while it replays a job.
type replayed struct {
	job      Job
	driver   Driver
	cores    Contention
	behind   Background
	nap      time.Duration // the nap that the policy has told the background goroutine to take; 0: it waits for a kick
	complain func(want string)
}

func replay(t *testing.T, path string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Scan()
	head := strings.Fields(lines.Text())
	r := replayed{job: Job{Spin: slices.Contains(head, "spin"), SpareCores: slices.Contains(head, "spare"),
		OneHost: slices.Contains(head, "onehost")}}
	var notes []*note
	for lines.Scan() {
		notes = append(notes, parseNote(t, lines.Text()))
	}
	for i, n := range notes {
		r.complain = func(want string) {
			t.Helper()
			t.Errorf("line %d: %s: %s %v: the policy says %q, the job did %q", i+2, n.actor, n.event, n.facts, want,
				n.actions)
		}
		switch n.actor {
		case "wait", "shutdown":
			r.drive(t, n)
		case "aside":
			r.background(t, n, nextMood(notes[i:]))
		case "seat":
			r.seat(t, n)
		case "bell": // the policy has no part in it
		default:
			t.Fatalf("nobody is called %q", n.actor)
		}
	}
}

// nextMood is the mood that the background goroutine notes next.
func nextMood(notes []*note) Mood {
	for _, n := range notes {
		if n.actor == "aside" && (n.event == "nothing" || n.event == "left") {
			return n.mood
		}
	}
	return Mood{}
}

func (r *replayed) check(got, want string) {
	if got != want {
		r.complain(want)
	}
}

func (r *replayed) drive(t *testing.T, n *note) {
	switch n.event {
	case "begins":
		r.driver = r.job.Begin(n.has("tired"), &r.cores)
	case "worked":
		var said tally
		for range n.times {
			said.add(r.driver.Worked())
		}
		r.check(n.actions, said.String())
	case "nothing":
		var said tally
		for range n.times {
			said.add(r.offered(r.driver.Nothing(n.has("polled"), n.has("bulk"))))
		}
		r.check(n.actions, said.String())
	case "rest":
		r.sleep(t, n)
	case "woke":
		r.driver.Woke(after(t, n.facts[0], "after="))
	case "yielded":
		r.cores.Yielded(after(t, n.facts[0], "after="))
	case "late":
		r.check(n.actions, r.driver.Checked(0).String())
	case "over":
		if n.has("worked") {
			r.driver.Worked()
		}
	default:
		t.Fatalf("a driver does not know the event %q", n.event)
	}
}

// offered takes a yield for a quick one. A note of its own follows a slow one.
func (r *replayed) offered(a Action) Action {
	if a == Yield || a == Check {
		r.cores.Yielded(0)
	}
	return a
}

// sleep checks a sleep. The notes do not tell the time until the deadline, so the sleep may be shorter.
func (r *replayed) sleep(t *testing.T, n *note) {
	slept := after(t, n.last, "sleep ")
	f := Facts{Polled: n.has("polled"), Behind: n.has("behind")}
	if n.has("observes") {
		f.Within = time.Millisecond
	}
	r.check(n.last, fmt.Sprint("sleep ", Sleep(slept, f)))
}

func (r *replayed) background(t *testing.T, n *note, next Mood) {
	b := &r.behind
	switch n.event {
	case "stays":
		if r.nap == 0 { // kicked
			first := after(t, n.last, "nap ")
			*b, r.nap = r.job.Kicked(Mood{Lazy: first == lazyGather, Spinning: first == spinningNap}, &r.cores)
		}
		r.check(n.last, fmt.Sprint("nap ", r.nap))
	case "returns":
		r.nap = 0
	case "begins":
		b.Seated(next)
		if b.doze == n.has("patient") {
			r.complain(fmt.Sprint("doze: ", b.doze))
		}
	case "worked":
		b.Worked()
	case "nothing":
		var said tally
		for range n.times {
			said.add(r.offered(b.Nothing(n.has("midway"), n.has("polled"), n.mood)))
		}
		r.check(n.actions, said.String())
	case "rest":
		r.sleep(t, n)
	case "yielded":
		r.cores.Yielded(after(t, n.facts[0], "after="))
	case "woke":
		b.Woke()
	case "over":
		if n.has("worked") {
			b.Worked()
		}
	case "left":
		want := "free"
		if next := n.seat().Next(); next == WakeParked {
			want = next.String()
		}
		r.check(n.last, want)
		if b.moved != n.has("moved") {
			r.complain(fmt.Sprint("moved: ", b.moved))
		}
		if r.nap = 0; n.has("pending") && !n.has("wanted") && !n.has("closing") {
			r.nap = b.Left(n.has("midway"), n.mood)
		}
	default:
		t.Fatalf("the background goroutine does not know the event %q", n.event)
	}
}

// seat is the seat that a note describes.
func (n *note) seat() (s Seat) {
	switch {
	case n.has("dozing"):
		s = dozing
	case n.has("aside"):
		s = background
	case n.has("taken"):
		s = waiter
	}
	for fact, bits := range map[string]Seat{"pending": OnePending, "news": news, "parked": parked, "wanted": wanted,
		"closing": closing} {
		if n.has(fact) {
			s |= bits
		}
	}
	return s
}

// seat checks who drives next, and what a waiter does that has not got the seat.
func (r *replayed) seat(t *testing.T, n *note) {
	switch n.event {
	case "leaves":
		r.check(n.last, n.seat().Next().String())
	case "found":
		want := "park"
		if n.seat().Aside() {
			want = "claim"
		}
		r.check(n.last, want)
	case "asked", "closed", "ended": // here the policy decides nothing
	default:
		t.Fatalf("nobody does %q to the seat", n.event)
	}
}
