package hosts

import (
	"fmt"
	"strings"
	"testing"
)

// differing runs the collectives on two ranks, of which the one on h1 has its own value of a variable.
func (c *testCluster) differing(variable string) *job {
	name, value, _ := strings.Cut(variable, "=")
	return c.run(does("collectives", "HOROVOD_GLOO_TIMEOUT_SECONDS=8"), "-np", "2", "-H", "h0:1,h1:1", "sh", "-c",
		fmt.Sprintf("[ $HOROVOD_HOSTNAME = h0 ] || export %s=%s; exec %s", name, value, self()))
}

// Hosts have different values of variables that all ranks must share: those of rank 0 count, and the others say so.
func TestVariablesThatDiffer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	for _, variable := range []string{"HOROVOD_FUSION_THRESHOLD=0", "HOROVOD_CACHE_CAPACITY=0",
		"GOROVOD_COMPRESSION=bf16", "GOROVOD_TCP_STREAMS=3", "HOROVOD_HIERARCHICAL_ALLREDUCE=1",
		"GOROVOD_DETERMINISTIC=1", "GOROVOD_NAN_CHECK=abort", "GOROVOD_KEEPALIVE_SECONDS=0",
		"GOROVOD_MEASURE_LINKS=0"} {
		j := c.differing(variable)
		name, _, _ := strings.Cut(variable, "=")
		j.expect(0, "this rank's setting differs from rank 0's, which counts.*"+name)
		if n := strings.Count(j.stdout.String(), "all is right"); n != 2 {
			t.Errorf("%s: %d of 2 ranks are right: %s", variable, n, &j.stderr)
		}
	}
}

// Hosts have values with which no job is possible. The job ends, and the message names the variable or the rank.
func TestVariablesThatCannotDiffer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	for variable, says := range map[string]string{
		"GOROVOD_TLS=1":  "GOROVOD_TLS is 1 on this rank and not on rank 0",
		"HOROVOD_SIZE=3": "rank 1",
		"HOROVOD_RANK=0": "rank 0",
		"HOROVOD_SECRET_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff": "secret|key",
		"HOROVOD_GLOO_IFACE=nosuch0":    "HOROVOD_GLOO_IFACE|nosuch0",
		"HOROVOD_FUSION_THRESHOLD=many": "HOROVOD_FUSION_THRESHOLD",
	} {
		j := c.differing(variable)
		j.expect(anyFailure, says)
	}
}
