package stall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/transcript"
)

// logged is a slog.Handler that keeps what is logged as "WARN text".
type logged struct {
	slog.Handler
	lines *[]string
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	*l.lines = append(*l.lines, r.Level.String()+" "+r.Message)
	return nil
}

// rankState is one line of a test, for one rank or for "1,3-5": "2 grad.1 ALLREDUCE 61 [@set] [unready] [blocked=61]
// [needed]", "2 -" for a rank that waits for nothing, "2 +300" for 300 tensors that do not fit into its answer, "2
// garbage" for an answer that cannot be read, "2 others" if threads other than the main one submit operations there.
type rankState struct {
	pending []Waiting
	more    int
	garbage bool
	at      string
	others  bool
}

func parse(t *testing.T, lines string) map[int]*rankState {
	t.Helper()
	ranks := map[int]*rankState{}
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		f := strings.Fields(line)
		for _, span := range strings.Split(f[0], ",") {
			var first, last int
			if n, _ := fmt.Sscanf(span, "%d-%d", &first, &last); n == 0 {
				t.Fatal(line)
			} else if n == 1 {
				last = first
			}
			for r := first; r <= last; r++ {
				if ranks[r] == nil {
					ranks[r] = &rankState{}
				}
				if err := ranks[r].parse(f[1:]); err != nil {
					t.Fatal(line, err)
				}
			}
		}
	}
	return ranks
}

func (s *rankState) parse(f []string) (err error) {
	switch {
	case strings.HasPrefix(f[0], "at="): // where its program is, with _ for spaces
		s.at = strings.ReplaceAll(f[0][3:], "_", " ")
	case f[0] == "-":
	case f[0] == "others":
		s.others = true
	case f[0] == "garbage":
		s.garbage = true
	case f[0][0] == '+':
		s.more, err = strconv.Atoi(f[0][1:])
	default:
		w := Waiting{Name: f[0], Op: f[1]}
		if w.Since, err = time.ParseDuration(f[2] + "s"); err != nil {
			return err
		}
		for _, o := range f[3:] {
			if blocked, ok := strings.CutPrefix(o, "blocked="); ok {
				if w.Blocked, err = time.ParseDuration(blocked + "s"); err != nil {
					return err
				}
				continue
			}
			switch o {
			case "needed":
				w.Needed = true
			case "unready":
				w.Phase = Unready
			case "executing":
				w.Phase = Executing
			default:
				if _, err := fmt.Sscanf(o, "@%d", &w.Set); err != nil {
					return err
				}
			}
		}
		s.pending = append(s.pending, w)
	}
	return err
}

// TestReports shows what users read: for each case, what waits on which rank, and what rank 0's Inspector logs.
func TestReports(t *testing.T) {
	transcript.Walk(t, "testdata/reports", func(t *testing.T, path string) {
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			var size, check, shutdown int
			d.ScanArg(t, "size", &size)
			d.ScanArg(t, "check", &check)
			d.MaybeScanArg(t, "shutdown", &shutdown)
			states := parse(t, d.Input)
			var out []string
			o := Options{
				CheckTime: time.Duration(check) * time.Second, ShutdownTime: time.Duration(shutdown) * time.Second,
				Snapshot:     func() []Waiting { return states[0].pending },
				OthersSubmit: func() bool { return states[0].others },
				Ask: func(context.Context) ([][]byte, error) {
					answers := make([][]byte, size)
					for r, s := range states {
						if answers[r] = encode(s.pending, s.at, s.others); s.more > 0 {
							answers[r] = fmt.Appendf(nil, `%s,"m":%d}`,
								strings.TrimSuffix(strings.TrimSpace(string(answers[r])), "}"), s.more)
						}
						if s.garbage {
							answers[r] = []byte("\x01")
						}
					}
					return answers, nil
				},
				Members: func(set int) (m []int) {
					for r := range size {
						if r%(set+1) == 0 { // set 1: the even ranks
							m = append(m, r)
						}
					}
					return m
				},
				Describe: func(r int) string { return fmt.Sprintf("rank %d on host %c", r, 'a'+r/2%26) },
				Log:      slog.New(logged{lines: &out}),
				Abort:    func(err error) { out = append(out, "abort: "+err.Error()) },
			}
			o.Deadlocks = d.HasArg("deadlocks")
			if d.HasArg("alone") {
				o.Ask = nil
			}
			if d.HasArg("lost") {
				o.Ask = func(context.Context) ([][]byte, error) { return nil, errors.New("the launcher is gone") }
			}
			i := New(o)
			i.Check(time.Hour)
			i.wg.Wait()
			i.Close()
			if len(out) == 0 {
				return "nothing\n"
			}
			return strings.Join(out, "\n") + "\n"
		})
	})
}
