package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/flags"
)

// secretFile is a file with a secret for nodes.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return flags.SecretFileVariable + "=" + file
}

// A mistake in the secret shows itself with one node, too, which needs none.
func TestOneNodeChecksItsSecret(t *testing.T) {
	for _, count := range []string{"1", "1:1"} {
		args := []string{"--nnodes", count, "true"}
		for _, env := range []string{secretFile(t, "PUT-64-HEXADECIMAL-DIGITS-HERE"), secretFile(t, ""),
			flags.SecretFileVariable + "=/no/such/file"} {
			launched(t, []string{env}, args...).expect(2, flags.SecretFileVariable+": ")
		}
		launched(t, []string{flags.SecretFileVariable + "="}, args...).expect(0)
		launched(t, []string{secretFile(t, strings.Repeat("0a", 32))}, args...).expect(0)
	}
}

// A wrong number of processes is that of the option or of the variable.
func TestNodeNamesWhereItsSlotsAreFrom(t *testing.T) {
	env := []string{"PET_NPROC_PER_NODE=0"}
	launched(t, env, "--nnodes", "1", "true").expect(2, `horovodrun: PET_NPROC_PER_NODE "0": a number from 1`)
	launched(t, env, "--nnodes", "1", "--nproc-per-node", "no", "true").expect(2,
		`horovodrun: --nproc-per-node "no": a number from 1`)
}

// Nodes that have only loopback cannot be several: a job that needs two does not start, and one that does not need the
// second goes on without it. Here the second node is a process of the first.
func TestElasticNodesWithLoopbackOnly(t *testing.T) {
	const why = "this host has no address but loopback"
	env := []string{secretFile(t, strings.Repeat("0a", 32)), "SELF=" + self()}
	options := []string{"--node-rank", "0", "--master-addr", "127.0.0.1", "--nproc-per-node", "1"}
	inNamespaces(t, "-n", "ip link set lo up", env, append(options, "--nnodes", "2:2", "true")...).expect(1, why)
	l := inNamespaces(t, "-n", "ip link set lo up", env, append(options, "--nnodes", "1:2", "bash", "-c",
		`(exec -a horovodrun "$SELF" --nnodes 1:2 --node-rank 1 --master-addr 127.0.0.1 --nproc-per-node 1 true)
		echo "node 1: $?"`)...)
	l.expect(0, "horovodrun: node 1 cannot take part: listen for the processes: "+why,
		"this node cannot take part, since node 0 says: listen for the processes: "+why)
	if !strings.Contains(l.stdout.String(), "node 1: 1\n") {
		t.Errorf("node 1 has another exit code: %s%s", &l.stdout, &l.stderr)
	}
}
