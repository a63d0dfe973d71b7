package doctor

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gorovod/gorovod/internal/base/config"
)

// shellWord is one word of a command line, up to its end: quoted, or with quotes in it.
const shellWord = `(?:"[^"\n]*"|(?:'[^'\n]*'|\\"[^"\n]*"|[^\s"])+)`

// assignment matches NAME=value; option matches -o value, -o=value and --option value; attached matches -ovalue.
var (
	assignment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(\b[A-Z][A-Z0-9_]+)(=)(` + shellWord + `)`)
	})
	option = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[\s"'(=\[,])(--?[A-Za-z][\w.-]*)(\\?["']?,?[ \t]+|=)(` + shellWord + `)`)
	})
	attached = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[\s"'(=\[,])(-[A-Za-z])()([^\s"'=-][^\s"'=]*)`)
	})
)

// withoutArguments removes the values of variables and options that are not known to be harmless.
func withoutArguments(s string) string {
	s = removeValues(s, assignment(), func(name, value string) bool { return !harmlessVariables()[name] })
	s = removeValues(s, option(), func(name, value string) bool {
		return !strings.HasPrefix(value, "-") && !strings.HasPrefix(value, removed) && !isHarmless(name)
	})
	return removeValues(s, attached(), func(name, value string) bool {
		plain := strings.Trim(value, "abcdefghijklmnopqrstuvwxyz-.,:;)]") == ""
		return (name == "-p" || !plain) && !isHarmless(name+value)
	})
}

// removeValues removes the third group of each match of shape, if isSecret says so of the first and the third. It goes
// on behind the name: a value that stays may be a name itself.
func removeValues(s string, shape *regexp.Regexp, isSecret func(name, value string) bool) string {
	var b strings.Builder
	for {
		m := shape.FindStringSubmatchIndex(s)
		if m == nil {
			b.WriteString(s)
			return b.String()
		}
		if isSecret(s[m[2]:m[3]], s[m[6]:m[7]]) {
			b.WriteString(s[:m[6]] + removed)
			s = s[m[7]:]
			continue
		}
		b.WriteString(s[:m[3]])
		s = s[m[3]:]
	}
}

// harmlessVariables are the variables whose values a bundle may have.
var harmlessVariables = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, name := range others {
		names[name] = true
	}
	for _, k := range config.Knobs {
		names[k.Name] = !k.Secret && !slices.Contains(commandVariables, k.Name)
	}
	return names
})

// harmlessOptions are the options that a bundle's texts give advice about: a test checks that the
// launcher's are here.
var harmlessOptions = strings.Fields(`
	--autotune --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --autotune-log-file
	--autotune-steps-per-sample --autotune-warmup-samples --blacklist-cooldown-range --bundle --cache-capacity
	--check-build --config-file --cycle-time-ms --dashboard --disable-cache --dump --elastic-timeout --env --fr-trace
	--fusion-threshold-mb --gloo --gloo-timeout-seconds --gpu --grace-period --help --hierarchical-allgather
	--hierarchical-allreduce --host-discovery-script --hostfile --hosts --leave-on --log-level --log-with-timestamp
	--log-without-timestamp --master-addr --master-port --max-np --max-num-proc --metrics-port --min-np --min-num-proc
	--mpi --network-interface --network-interfaces --nnodes --no-pairs --node-rank --nproc-per-node --num-nccl-streams
	--num-proc --output-filename --prefix-output-with-timestamp --python --rdzv-id --remote-command --reset-limit
	--shm-size --slots-per-host --ssh-identity-file --ssh-port --stall-check-shutdown-time-seconds
	--stall-check-warning-time-seconds --start-timeout --tcp --thread-affinity --timeline-filename --verbose --version
	-H -h -n -np -cb -hostfile -prefix-timestamp
`)

// isHarmless reports whether an option's value is no secret.
func isHarmless(name string) bool {
	return slices.Contains(harmlessOptions, name) || strings.HasPrefix(name, "--xla_")
}
