package flags

import (
	"strings"
	"testing"
)

// Command lines are understood or refused with words. So are those that the launcher builds for agents and other
// launchers.
func FuzzFlags(f *testing.F) {
	for _, line := range []string{"-np 2 python train.py", "-H a:1,b:2 --verbose -- x",
		"--min-np 1 --max-np 3 --host-discovery-script ./d --slots-per-host 2 x",
		"-np -1", "--timeline-filename", "-p 22 -i k --start-timeout 1e9 x", "--config-file /dev/null x", "-np=2 -cb",
		"--blacklist-cooldown-range 1 2 -np 1 x", "-np \x00"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "config-file") && !strings.Contains(line, "/dev/null") {
			return // the option names a file to read
		}
		o, err := Parse("horovodrun", strings.Fields(line))
		switch {
		case err != nil && strings.TrimSpace(err.Error()) == "":
			t.Errorf("%q is refused without a word", line)
		case err == nil && o == nil:
			t.Errorf("%q is neither understood nor refused", line)
		}
	})
}
