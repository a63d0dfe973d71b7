//go:build cgo && linux

package gpu

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// mostAfterDeath is the longest time in which ranks get rid of a dead one, on a loaded machine. TestDeath logs the real
// times.
const mostAfterDeath = 5 * time.Second

// TestDeath makes a rank kill itself during a program, so that collectives of NCCL hang in the streams of the other
// ranks. The other ranks abort their communicators, name the dead rank, and end with nothing left.
func TestDeath(t *testing.T) {
	var heard, rid []time.Duration
	for i, mode := range []string{"-mode nccl", "-mode nccl -async", "-mode staged"} {
		for k := range max(1, *programs/500) {
			s := *seed + uint64(k)
			h, r := endsAmid(t, 2+(i+k)%3, s, mode)
			heard, rid = append(heard, h...), append(rid, r...)
		}
	}
	if len(rid) == 0 {
		t.Fatal("no rank has survived")
	}
	t.Logf("from the death to the error: %s; to streams and communicators that are free: %s", spread(heard),
		spread(rid))
	if last := slices.Max(rid); last > mostAfterDeath {
		t.Errorf("a rank was rid of a dead one after %v", last)
	}
}

// TestExit makes a rank end by exit(0) while the engine and the device are at work. The rank's exit status is 0, and
// the others end as after a death.
func TestExit(t *testing.T) {
	for i, mode := range []string{"-mode nccl", "-mode nccl -async", "-mode staged", "-mode auto"} {
		for k := range max(1, *programs/2000) {
			endsAmid(t, 2+i%2, *seed+uint64(k), mode+" -exit")
		}
	}
}

// endsAmid runs a job whose rank 0 ends during a program. It returns the times that each other rank took to hear of
// that, and to get rid of rank 0.
func endsAmid(t *testing.T, ranks int, seed uint64, arguments string) (heard, rid []time.Duration) {
	t.Helper()
	out, said, err := runRandom(t, ranks, append(strings.Fields(arguments), "-programs", "60", "-die",
		itoa(1+seed*7%40), "-seed", itoa(seed))...)
	died := moments(t, out, "dies at")
	if err == nil || said != "" || len(died) != 1 || !strings.Contains(out, "ended after the death of a rank") {
		t.Errorf("%s, seed %d: %v\n%s%s", arguments, seed, err, said, out)
		return nil, nil
	}
	if strings.Contains(arguments, "-exit") != strings.Contains(out, "exited with code 0") {
		t.Errorf("%s, seed %d: rank 0 has another end\n%s", arguments, seed, out)
	}
	for _, at := range moments(t, out, "hears at") {
		heard = append(heard, at-died[0])
	}
	for _, at := range moments(t, out, "is rid of it at") {
		rid = append(rid, at-died[0])
	}
	if len(heard) != ranks-1 || len(rid) != ranks-1 {
		t.Errorf("%s, seed %d: %d and %d of %d ranks say when\n%s", arguments, seed, len(heard), len(rid), ranks-1, out)
	}
	return heard, rid
}

// moments returns the times that ranks print after a text.
func moments(t *testing.T, out, text string) (all []time.Duration) {
	for _, m := range regexp.MustCompile(text+` ([0-9a-zµ.]+)`).FindAllStringSubmatch(out, -1) {
		at, err := time.ParseDuration(m[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, at)
	}
	return all
}

// spread describes times by their number, median, 90th percentile and longest.
func spread(all []time.Duration) string {
	slices.Sort(all)
	round := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return itoa(uint64(len(all))) + " times, median " + round(all[len(all)/2]) + ", 9 of 10 within " +
		round(all[len(all)*9/10]) + ", longest " + round(all[len(all)-1])
}
