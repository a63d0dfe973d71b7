package launch

import (
	"math"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A rank has the descriptors and limits that it would have without a launcher, except the standard ones: an empty input
// and two pipes.
func TestRanksInheritNothingOfTheLauncher(t *testing.T) {
	const script = "cat; for f in /proc/$$/fd/*; do echo ${f##*/}; done; ulimit -n"
	keepOwnDescriptors(t)
	direct := exec.Command("sh", "-c", script)
	want, err := direct.Output()
	if err != nil {
		t.Fatal(err)
	}
	l := launched(t, nil, "-np", "2", "sh", "-c", script)
	l.Stdin = strings.NewReader("must not arrive")
	l.expect(0)
	var got strings.Builder
	for line := range strings.Lines(l.stdout.String()) {
		if rest, ok := strings.CutPrefix(line, "[0]<stdout>:"); ok {
			got.WriteString(rest)
		}
	}
	if got.String() != string(want) {
		t.Errorf("descriptors and limit: %q, without a launcher %q", got.String(), want)
	}
}

// keepOwnDescriptors keeps our children from inheriting descriptors that our own parent left open, such as a lock.
func keepOwnDescriptors(t *testing.T) {
	t.Helper()
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}
