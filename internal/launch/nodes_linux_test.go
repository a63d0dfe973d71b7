package launch

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/nodes"
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

// A node whose place another one has taken before the job began says so.
func TestReplacedNodeSaysWhy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	key, say := []byte(strings.Repeat("k", 32)), func(string) {}
	place := nodes.Place{Count: 3, Least: 3, Head: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
	g := nodes.Gather(l, place, nodes.Node{Host: "a", Slots: 1}, key, replaceNode, say)
	defer g.Close()
	place.Rank = 1
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends := make(chan error, 2)
	for _, host := range []string{"b", "c"} {
		conn, err := nodes.Join(ctx, place, host, 1, key, say)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := serveNode(conn, func(string) {})
			ends <- err
		}()
	}
	select {
	case err := <-ends:
		if err == nil || err.Error() != replacedText {
			t.Errorf("the earlier node says %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the earlier node does not end")
	}
	g.Close()
	if err := <-ends; err == nil || !strings.Contains(err.Error(), "node 0 has given up before the job began") {
		t.Errorf("the later node says %v", err)
	}
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
