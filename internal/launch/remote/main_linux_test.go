package remote

import (
	"os"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// TestMain lets the test binary be the supervisor of what the tests start.
func TestMain(m *testing.M) {
	if os.Args[0] == spawn.SupervisorName {
		os.Exit(spawn.Supervise(os.Args[1:]))
	}
	os.Exit(m.Run())
}
