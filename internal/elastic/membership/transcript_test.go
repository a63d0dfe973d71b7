package membership

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/transcript"
)

// TestTranscripts plays the scenarios in testdata, one file each. Each command may have at=SECONDS; without it time
// stands still:
//
//	job np=4 [min=2] [max=4] [resets=0] [timeout=600] [patience=30] [cooldown=(10,100)] [fixed] [resumable] [wholehosts]
//	hosts a:4 b:2                discovery finds these hosts
//	ready w=(0,1) [commit=3] [intact] [sets=2] [trouble=text]   workers wait for a place
//	ended w=(0,1) [failed]       their processes are gone
//	heard w=1                    a worker has answered a ping
//	saved commit=3               a commit is on the disk
//	unreachable w=1              a worker's connection is gone
//	lost host=a                  a host is gone
//	tick                         time has passed
//
// To accept the present output: go test ./internal/elastic/membership -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *State
		var now time.Duration
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			at := -1.0
			scanFloat(t, d, "at", &at)
			if at >= 0 {
				now = time.Duration(at * float64(time.Second))
			}
			var out []Action
			switch d.Cmd {
			case "job":
				s = New(config(t, d))
				now = 0
			case "hosts":
				var hosts []Host
				for _, arg := range d.Args {
					if name, n, ok := strings.Cut(arg.Key, ":"); ok {
						slots, _ := strconv.Atoi(n)
						hosts = append(hosts, Host{name, slots})
					}
				}
				out = s.Hosts(now, hosts)
			case "ready":
				r := Registration{Commit: -1, Intact: d.HasArg("intact")}
				commit, sets := -1, 0
				d.MaybeScanArg(t, "commit", &commit)
				d.MaybeScanArg(t, "trouble", &r.Trouble)
				d.MaybeScanArg(t, "sets", &sets)
				r.Commit = int64(commit)
				for i := range sets {
					r.Sets = append(r.Sets, []int{i, i + 1})
				}
				for _, w := range ids(t, d) {
					out = append(out, s.Ready(now, w, r)...)
				}
			case "ended":
				for _, w := range ids(t, d) {
					out = append(out, s.Ended(now, w, d.HasArg("failed"))...)
				}
			case "heard":
				for _, w := range ids(t, d) {
					s.Heard(now, w)
				}
			case "saved":
				commit := 0
				d.ScanArg(t, "commit", &commit)
				s.Saved(int64(commit))
			case "unreachable":
				for _, w := range ids(t, d) {
					out = append(out, s.Unreachable(now, w)...)
				}
			case "lost":
				var host string
				d.ScanArg(t, "host", &host)
				out = s.HostLost(now, host)
			case "tick":
				out = s.Tick(now)
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			}
			var b strings.Builder
			for _, a := range out {
				fmt.Fprintln(&b, a)
			}
			if next, ok := s.Next(); ok {
				fmt.Fprintf(&b, "next tick at %v\n", next)
			}
			return b.String()
		})
	})
}

func scanFloat(t *testing.T, d *transcript.Command, name string, v *float64) {
	text := ""
	d.MaybeScanArg(t, name, &text)
	if text == "" {
		return
	}
	var err error
	if *v, err = strconv.ParseFloat(text, 64); err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
}

func config(t *testing.T, d *transcript.Command) Config {
	c := Config{ResetLimit: -1, Fixed: d.HasArg("fixed"), Resumable: d.HasArg("resumable"),
		WholeHosts: d.HasArg("wholehosts"), Random: func() float64 { return 0.5 }}
	d.ScanArg(t, "np", &c.NP)
	c.Min = c.NP
	d.MaybeScanArg(t, "min", &c.Min)
	d.MaybeScanArg(t, "max", &c.Max)
	d.MaybeScanArg(t, "resets", &c.ResetLimit)
	timeout, patience := 600.0, 30.0
	scanFloat(t, d, "timeout", &timeout)
	scanFloat(t, d, "patience", &patience)
	c.Timeout, c.Patience = time.Duration(timeout*float64(time.Second)), time.Duration(patience*float64(time.Second))
	for _, arg := range d.Args {
		if arg.Key == "cooldown" {
			low, _ := strconv.Atoi(arg.Vals[0])
			high, _ := strconv.Atoi(arg.Vals[1])
			c.Cooldown = Cooldown{time.Duration(low) * time.Second, time.Duration(high) * time.Second}
		}
	}
	return c
}

func ids(t *testing.T, d *transcript.Command) (list []int) {
	for _, arg := range d.Args {
		if arg.Key == "w" {
			for _, v := range arg.Vals {
				id, err := strconv.Atoi(v)
				if err != nil {
					t.Fatalf("%s: worker %s", d.Pos, v)
				}
				list = append(list, id)
			}
		}
	}
	return list
}
