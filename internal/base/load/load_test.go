package load

import (
	"runtime"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		loadavg, online string
		want            Load
		full            bool
		says            string
	}{
		{"10.34 5.03 2.56 9/296 14469\n", "0-1\n", Load{10.34, 8, 2}, true, "load average 10.3 on 2 cores"},
		{"0.50 0 0 1/96 7\n", "0\n", Load{0.5, 0, 1}, false, "load average 0.5 on 1 core"},
		{"3.90 0 0 3/96 7\n", "0,2-3,5\n", Load{3.9, 2, 4}, false, "load average 3.9 on 4 cores"},
		{"", "nonsense", Load{Cores: runtime.NumCPU()}, false, "load average 0.0 on " + Cores(runtime.NumCPU())},
	} {
		if l := parse(c.loadavg, c.online); l != c.want || l.Full() != c.full || l.String() != c.says {
			t.Errorf("%q, %q: %+v, %v, %q", c.loadavg, c.online, l, l.Full(), l)
		}
	}
	if l := Now(); l.Cores < 1 {
		t.Errorf("this host: %+v", l)
	}
}
