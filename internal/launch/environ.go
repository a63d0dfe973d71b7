package launch

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// secretVariable hands the job's secret to the processes, in hexadecimal.
const secretVariable = "HOROVOD_SECRET_KEY"

// notExported are the names that processes do not inherit from the launcher, as
// upstream has it; each matches from the start of the name. Besides those,
// secrets of other jobs are not passed on.
var notExported = regexp.MustCompile(`^(BASH_FUNC_.*|OLDPWD|.*CUDA_VISIBLE_DEVICES)`)

// exportable returns those variables of env that processes inherit.
func exportable(env []string) []string {
	var kept []string
	for _, e := range env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || name == secretVariable || name == "_"+secretVariable || name == resultVariable || notExported.MatchString(name) {
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// setenv returns env with name set to value, once.
func setenv(env []string, name, value string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			kept = append(kept, e)
		}
	}
	return append(kept, name+"="+value)
}

// environ is the environment of one rank's process.
func (s Slot) environ(base []string, port int, key []byte) []string {
	set := map[string]string{
		"HOROVOD_HOSTNAME":             s.Host,
		"HOROVOD_RANK":                 strconv.Itoa(s.Rank),
		"HOROVOD_SIZE":                 strconv.Itoa(s.Size),
		"HOROVOD_LOCAL_RANK":           strconv.Itoa(s.LocalRank),
		"HOROVOD_LOCAL_SIZE":           strconv.Itoa(s.LocalSize),
		"HOROVOD_CROSS_RANK":           strconv.Itoa(s.CrossRank),
		"HOROVOD_CROSS_SIZE":           strconv.Itoa(s.CrossSize),
		"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
		"HOROVOD_GLOO_RENDEZVOUS_PORT": strconv.Itoa(port),
		"HOROVOD_CONTROLLER":           "gloo",
		"HOROVOD_CPU_OPERATIONS":       "gloo",
		"HOROVOD_GLOO_IFACE":           "lo",
		"NCCL_SOCKET_IFNAME":           "lo",
		"PYTHONUNBUFFERED":             "1",
		secretVariable:                 hex.EncodeToString(key),
	}
	env := make([]string, 0, len(base)+len(set))
	for _, e := range base {
		name, _, _ := strings.Cut(e, "=")
		if _, replaced := set[name]; !replaced {
			env = append(env, e)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}
