package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gorovod doctor sees the environment of the process.
func TestDoctorIsASubcommand(t *testing.T) {
	t.Setenv("HOROVOD_CACHE_CAPACITY", "77")
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stdout := os.Stdout
	os.Stdout = file
	code := Main([]string{"/usr/bin/gorovod", "doctor", "--env"})
	os.Stdout = stdout
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); code == 0 && len(f) > 2 && f[0] == "HOROVOD_CACHE_CAPACITY" && f[1] == "77" && f[2] == "environment" {
			return
		}
	}
	t.Errorf("exit code %d, output:\n%s", code, out)
}
