package process

import (
	"strings"
	"testing"
)

// Rank 0 tells once of a misspelt variable, also where it initialises again. Under horovodrun the launcher does.
func TestAMisspeltVariableIsToldOnce(t *testing.T) {
	const says = `"HOROVOD_FUSION_TRESHOLD" is no variable of gorovod or Horovod, and has no effect: did you mean ` +
		`HOROVOD_FUSION_THRESHOLD?`
	wrong := []string{"HOROVOD_FUSION_TRESHOLD=1", "HOROVOD_OF_OTHERS=1", "HOROVOD_CCL_CACHE=1"}
	dir := "GOROVOD_RENDEZVOUS_DIR=" + t.TempDir()
	alone := ranks(t, wrong)[0]
	two := ranks(t, openMPI(0, 2, 0, 2, append(wrong, dir)...), openMPI(1, 2, 1, 2, append(wrong, dir)...))
	launched := ranks(t, append(wrong, "HOROVOD_RANK=0", "HOROVOD_SIZE=1"))[0]
	for _, c := range []struct {
		name, said string
		times      int
	}{{"alone", alone, 1}, {"rank 0", two[0], 1}, {"rank 1", two[1], 0}, {"under horovodrun", launched, 0}} {
		if strings.Count(strings.ReplaceAll(c.said, `\"`, `"`), says) != c.times ||
			strings.Count(c.said, "is no variable") != c.times || strings.Contains(c.said, "error") {
			t.Errorf("%s: %s", c.name, c.said)
		}
	}
}
