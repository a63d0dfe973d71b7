package bench_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/tools/bench"
)

// contestRank is the program of an entrant's one rank: "rank NAME LOG NANOSECONDS ORDERS SOCKET FLOATS". It says that
// each repetition of an order took so long, notes its name in the log for each order, and dies at the order after
// ORDERS; with 0 it does not even connect.
func contestRank(args []string) int {
	ns, orders := args[2], args[3]
	left, err := strconv.Atoi(orders)
	if err != nil || left == 0 {
		fmt.Println("no such library")
		return 3
	}
	conn, err := net.Dial("unix", args[4])
	if err != nil {
		return 4
	}
	fmt.Fprintln(conn, "hello 0")
	for lines := bufio.NewScanner(conn); lines.Scan(); left-- {
		if left == 0 {
			fmt.Println("out of memory")
			return 5
		}
		log, err := os.OpenFile(args[1], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return 6
		}
		fmt.Fprint(log, args[0])
		log.Close()
		words := strings.Fields(lines.Text()) // run MODE SIZES REPETITIONS INNER
		reps, err := strconv.Atoi(words[3])
		if err != nil {
			return 7
		}
		fmt.Fprintln(conn, "ok"+strings.Repeat(" "+ns, reps))
	}
	return 0
}

// contest is one with entrants that are contestRanks. log has the names of those that got an order, in their order.
type contest struct {
	bench.Contest
	log  string
	told strings.Builder
}

func newContest(t *testing.T, works ...bench.Work) *contest {
	t.Helper()
	dir := shortDir(t)
	c := &contest{log: filepath.Join(dir, "log")}
	if err := os.WriteFile(c.log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Contest = bench.Contest{Dir: dir, Ranks: 1, Works: works, Rounds: 2, LongRounds: 1, Turn: time.Millisecond,
		Most: 8 * time.Second, Until: time.Now().Add(time.Hour),
		Tell: func(format string, args ...any) { fmt.Fprintf(&c.told, format+"\n", args...) }}
	return c
}

// enter adds an entrant whose repetitions take so long, and that obeys so many orders.
func (c *contest) enter(name string, took time.Duration, orders int) {
	c.Entrants = append(c.Entrants, bench.Entrant{Name: name, Command: func(ctx context.Context, socket,
		floats string) *exec.Cmd {
		return exec.CommandContext(ctx, "/proc/self/exe", "rank", name, c.log, fmt.Sprint(took.Nanoseconds()),
			fmt.Sprint(orders), socket, floats)
	}})
}

func (c *contest) turns(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(c.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

const always = 1000 // orders

// In each round another entrant begins.
func TestContestTakesTurns(t *testing.T) {
	c := newContest(t, bench.Work{Name: "4 B", Sizes: []int{1}, Inner: 10})
	c.enter("a", 2*time.Millisecond, always)
	c.enter("b", time.Millisecond, always)
	c.enter("c", 3*time.Millisecond, always)
	outcomes, err := c.Run(t.Context())
	if err != nil || len(outcomes) != 3 {
		t.Fatalf("%+v, %v, %s", outcomes, err, &c.told)
	}
	if got := c.turns(t); got != "abc"+"bca"+"cab" {
		t.Errorf("turns %s", got)
	}
	for i, seconds := range []float64{2e-4, 1e-4, 3e-4} {
		o := &outcomes[i]
		if o.Peer != c.Entrants[i].Name || o.Bytes != 4 || o.Tensors != 1 || len(o.Rounds) != 2 || o.Skipped != "" ||
			o.Time.Median != seconds {
			t.Errorf("%+v", o)
		}
	}
}

// Work that takes long has fewer rounds, and all of them count. A list that would take too long has none.
func TestContestLeavesOutWhatTakesTooLong(t *testing.T) {
	c := newContest(t, bench.Work{Name: "few", Sizes: bench.Many(10, 1), Inner: 1, List: true},
		bench.Work{Name: "many", Sizes: bench.Many(1000, 1), Inner: 1, List: true})
	c.enter("a", 2*time.Second, always)
	c.enter("b", 2*time.Millisecond, always)
	outcomes, err := c.Run(t.Context())
	if err != nil || len(outcomes) != 4 {
		t.Fatalf("%+v, %v, %s", outcomes, err, &c.told)
	}
	if got := c.turns(t); got != "ab"+"b"+"b"+"b"+"b"+"b" {
		t.Errorf("turns %s", got)
	}
	if few, many := &outcomes[0], &outcomes[2]; len(few.Rounds) != 1 || few.Time.Median != 2 ||
		many.Skipped != "about 200 s" || many.Time.N != 0 {
		t.Errorf("%+v, %+v", few, many)
	}
	if b := &outcomes[3]; len(b.Rounds) != 2 || b.Skipped != "" {
		t.Errorf("%+v", b)
	}
}

// An entrant that cannot start, or that dies, is named with what it said last. It has no figures. The others go on.
func TestContestGoesOnWithoutWhoFails(t *testing.T) {
	c := newContest(t, bench.Work{Name: "4 B", Sizes: []int{1}, Inner: 1})
	c.enter("a", time.Millisecond, always)
	c.enter("b", time.Millisecond, 1) // it dies in the first round that counts
	c.enter("c", time.Millisecond, 0)
	c.Entrants = append(c.Entrants, bench.Entrant{Name: "d", Command: func(ctx context.Context, _, _ string) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(c.Dir, "nobody"))
	}})
	outcomes, err := c.Run(t.Context())
	if err == nil || len(outcomes) != 4 {
		t.Fatalf("%+v, %v", outcomes, err)
	}
	if got := c.turns(t); got != "ab"+"a"+"a" {
		t.Errorf("turns %s", got)
	}
	for _, want := range []string{"4 B of 4 bytes: b: the job has ended; it said last:\nout of memory",
		"c: the job has ended; it said last:\nno such library", "d: start the launcher: ", "nobody"} {
		if !strings.Contains(err.Error(), want) || !strings.Contains(c.told.String(), want) {
			t.Errorf("%q is not in %v, or not in %s", want, err, &c.told)
		}
	}
	for i := range outcomes {
		o := &outcomes[i]
		if i == 0 && (o.Skipped != "" || len(o.Rounds) != 2) || i > 0 && (o.Skipped != "failed" || o.Time.N != 0 ||
			o.Rounds != nil) {
			t.Errorf("%+v", o)
		}
	}
	if left := leftovers(t, c.log); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestContestWithoutAnybody(t *testing.T) {
	c := newContest(t, bench.Work{Name: "4 B", Sizes: []int{1}, Inner: 1})
	c.enter("a", time.Millisecond, 0)
	if outcomes, err := c.Run(t.Context()); err == nil || outcomes != nil {
		t.Errorf("%+v, %v", outcomes, err)
	}
}

// The end of the context ends a contest with its cause, and the jobs with it. Work that is not begun in time has no
// figures.
func TestContestEnds(t *testing.T) {
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := newContest(t, bench.Work{Name: "4 B", Sizes: []int{1}, Inner: 1})
	c.enter("a", time.Millisecond, always)
	c.enter("b", time.Millisecond, always)
	c.Tell = func(format string, _ ...any) {
		if strings.HasPrefix(format, "round") {
			cancel(over)
		}
	}
	if outcomes, err := c.Run(ctx); !errors.Is(err, over) || outcomes != nil {
		t.Errorf("%+v, %v", outcomes, err)
	}
	if left := leftovers(t, c.log); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	late := newContest(t, bench.Work{Name: "4 B", Sizes: []int{1}, Inner: 1})
	late.enter("a", time.Millisecond, always)
	late.Until = time.Now().Add(-time.Second)
	outcomes, err := late.Run(t.Context())
	if err != nil || len(outcomes) != 1 || outcomes[0].Skipped != "no time" {
		t.Errorf("%+v, %v", outcomes, err)
	}
}
