package job

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/nodes"
)

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
