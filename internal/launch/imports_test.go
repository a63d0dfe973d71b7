package launch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The library and package hvd do not depend on the packages of the command line.
func TestTheLibraryKnowsNoCommandLine(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../hvd", "../../cmd/libgorovod").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "github.com/gorovod/gorovod/internal/core/engine") {
		t.Fatalf("%q", packages)
	}
	for _, p := range packages {
		for _, banned := range []string{"alecthomas/kong", "golang.org/x/image", "internal/base/commandline",
			"internal/tools/chart", "internal/tools/notices", "internal/launch", "go.yaml.in", "image/png", "net/http",
			"prometheus", "internal/observe/metrics", "internal/observe/overview", "internal/observe/dashboard",
			"internal/observe/door", "internal/tools/progress", "internal/observe/top", "internal/observe/summary",
			"gdamore/tcell"} {
			if strings.Contains(p, banned) {
				t.Errorf("they import %s", p)
			}
		}
	}
}
