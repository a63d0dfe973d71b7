package placement

import (
	"encoding/hex"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/base/lazyregexp"
	"github.com/gorovod/gorovod/internal/launch/meeting"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/observe/dashboard"
	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/metrics"
)

// notExported matches the names of variables that processes do not inherit from the launcher, as in Horovod. Each
// alternative matches from the start of the name. Secrets of other jobs are not passed on either.
var notExported = lazyregexp.New(`^(BASH_FUNC_.*|OLDPWD|.*CUDA_VISIBLE_DEVICES)`)

// Exportable returns the variables of env that processes inherit. If another launcher has started this one as a process
// of its job, the variables of that place are left out. So are those by which rank 0 would show the job, as this
// launcher does.
func Exportable(env []string) []string {
	inherited := environment.Inherited(func(name string) (string, bool) {
		for _, e := range env {
			if n, v, _ := strings.Cut(e, "="); n == name {
				return v, true
			}
		}
		return "", false
	})
	var kept []string
	for _, e := range env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || name == spawn.SecretVariable || name == "_"+spawn.SecretVariable ||
			name == spawn.ResultVariable || name == door.TokenVariable || name == metrics.Variable ||
			name == dashboard.Variable || inherited(name) || notExported().MatchString(name) {
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// ofOneHost matches variables about the launcher's host, or about its user's session there. They would be wrong on
// another host.
var ofOneHost = lazyregexp.New(
	`^(SSH_.*|HOSTNAME|XDG_RUNTIME_DIR|XDG_SESSION_.*|DBUS_SESSION_BUS_ADDRESS|TMUX.*|STY|WINDOWID)$`)

// ForOthers returns those variables of env that processes on other hosts inherit.
func ForOthers(env []string) []string {
	var kept []string
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !ofOneHost().MatchString(name) {
			kept = append(kept, e)
		}
	}
	return kept
}

// Environ is the environment of one rank's process. job has the variables that all ranks of its host share.
func (s Slot) Environ(base []string, job map[string]string) []string {
	set := s.Variables()
	maps.Copy(set, job)
	env := make([]string, 0, len(set))
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return environment.Overlay(base, env)
}

// Variables are the variables of a rank's place.
func (s Slot) Variables() map[string]string {
	return map[string]string{
		"HOROVOD_HOSTNAME":       s.Host,
		"HOROVOD_RANK":           strconv.Itoa(s.Rank),
		"HOROVOD_SIZE":           strconv.Itoa(s.Size),
		"HOROVOD_LOCAL_RANK":     strconv.Itoa(s.LocalRank),
		"HOROVOD_LOCAL_SIZE":     strconv.Itoa(s.LocalSize),
		"HOROVOD_CROSS_RANK":     strconv.Itoa(s.CrossRank),
		"HOROVOD_CROSS_SIZE":     strconv.Itoa(s.CrossSize),
		"HOROVOD_CONTROLLER":     "gloo",
		"HOROVOD_CPU_OPERATIONS": "gloo",
		"PYTHONUNBUFFERED":       "1",
	}
}

// Shared are the variables of all ranks that find the rendezvous at these addresses: the secret and the interfaces.
func Shared(key []byte, addrs []netip.AddrPort, interfaces []string) map[string]string {
	set := map[string]string{spawn.SecretVariable: hex.EncodeToString(key)}
	maps.Copy(set, meeting.Variables(addrs))
	if len(interfaces) > 0 {
		list := strings.Join(interfaces, ",")
		set["HOROVOD_GLOO_IFACE"], set["NCCL_SOCKET_IFNAME"] = list, list
	}
	return set
}
