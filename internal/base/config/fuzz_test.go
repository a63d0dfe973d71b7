package config

import (
	"strings"
	"testing"
)

// For any environment, Load returns. An error names a variable that is set or missing; a Config that is accepted can be
// shown and adopted again.
func FuzzLoad(f *testing.F) {
	f.Add("HOROVOD_RANK=1\nHOROVOD_SIZE=2\nHOROVOD_GLOO_RENDEZVOUS_ADDR=a\nHOROVOD_GLOO_RENDEZVOUS_PORT=1\n" +
		"HOROVOD_SECRET_KEY=" + testKey)
	f.Add("HOROVOD_CYCLE_TIME=1e400\nHOROVOD_FUSION_THRESHOLD=-1\nHOROVOD_TIMELINE=\x00\nHOROVOD_LOG_LEVEL=x")
	f.Add("GOROVOD_HEARTBEAT_SECONDS=NaN\nHOROVOD_STALL_CHECK_TIME_SECONDS=0x1p60\n" +
		"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1")
	f.Add("HOROVOD_CONTROLLER=mpi\nHOROVOD_CPU_OPERATIONS=gloo\nHOROVOD_GLOO_IFACE=eth0,,")
	f.Add("SLURM_PROCID=7\nSLURM_NTASKS=2\nSLURM_STEP_ID=0\nRANK=1\nWORLD_SIZE=0")
	for _, k := range Knobs {
		f.Add(k.Name + "=1\nHOROVOD_SIZE=1")
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars := map[string]string{}
		for _, line := range strings.Split(text, "\n") {
			if name, value, ok := strings.Cut(line, "="); ok {
				vars[name] = value
			}
		}
		lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
		Read(lookup).Agreed()
		c, err := Load(lookup)
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if !namesVariable(line, vars) {
					t.Errorf("%q: the error %q names no variable", text, line)
				}
			}
			return
		}
		if c.Told.Size < 1 || c.Told.Rank < 0 || c.Told.Rank >= c.Told.Size || c.Told.LocalRank >= c.Told.LocalSize ||
			c.Told.CrossRank >= c.Told.CrossSize {
			t.Errorf("%q: rank %d of %d, %d of %d, %d of %d", text, c.Told.Rank, c.Told.Size, c.Told.LocalRank,
				c.Told.LocalSize, c.Told.CrossRank, c.Told.CrossSize)
		}
		zero := c.Agreed()
		if differed, err := c.Adopt(zero); err != nil || len(differed) > 0 {
			t.Errorf("%q: its own knobs differ: %v, %v", text, differed, err)
		}
		if _, err := defaults().Adopt(zero); err != nil {
			t.Errorf("%q: another rank cannot adopt them: %v", text, err)
		}
	})
}

// namesVariable reports that a sentence has the name of a knob, or of a variable that is set.
func namesVariable(line string, vars map[string]string) bool {
	for _, k := range Knobs {
		if strings.Contains(line, k.Name) {
			return true
		}
	}
	for name := range vars {
		if name != "" && strings.Contains(line, name) {
			return true
		}
	}
	return strings.Contains(line, "HOROVOD_LOCAL_RANK") || strings.Contains(line, "HOROVOD_CROSS_RANK")
}
