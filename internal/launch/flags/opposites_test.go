package flags

import (
	"reflect"
	"strings"
	"testing"
)

// Each option that has an opposite is refused together with it, in whatever order and spelling, and accepted twice.
func TestOppositeOptions(t *testing.T) {
	pairs := map[string]string{"--log-with-timestamp": "--log-without-timestamp"}
	for _, name := range strings.Fields("hierarchical-allreduce hierarchical-allgather torus-allreduce autotune " +
		"timeline-mark-cycles stall-check mpi-threads-disable") {
		pairs["--"+name] = "--no-" + name
	}
	negatable := 0
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Flags]()) {
		if _, ok := field.Tag.Lookup("negatable"); ok {
			negatable++
		}
	}
	if negatable != len(pairs) {
		t.Errorf("%d options have opposites, and %d are tried", negatable, len(pairs))
	}
	for yes, no := range pairs {
		for _, both := range []string{yes + " " + no, no + " " + yes, yes + " --verbose -np=3 " + no, yes + "=true " +
			no, yes + "=false " + yes, yes + " " + no + "=true"} {
			_, err := Parse("horovodrun", strings.Fields("-np 2 "+both+" x"))
			if err == nil || !strings.HasSuffix(err.Error(), ": one of them") || !strings.Contains(err.Error(), yes) {
				t.Errorf("%s: %v", both, err)
			}
		}
		for _, one := range []string{yes + " " + yes, no + " " + no, yes + "=false " + no, yes + " x " + no} {
			if _, err := Parse("horovodrun", strings.Fields("-np 2 "+one+" x")); err != nil {
				t.Errorf("%s: %v", one, err)
			}
		}
	}
	if _, err := Parse("horovodrun",
		strings.Fields("-np 2 --log-hide-timestamp --log-with-timestamp x")); err == nil ||
		!strings.Contains(err.Error(), "one of them") {
		t.Errorf("another name of an opposite: %v", err)
	}
	// These are no opposites.
	if _, err := Parse("horovodrun", strings.Fields("-np 2 --torus-allreduce --no-hierarchical-allreduce "+
		"--log-without-timestamp -prefix-timestamp x")); err != nil {
		t.Error(err)
	}
}

// Old names are obeyed, and a warning gives the new ones; a note names settings of features that are off.
func TestWordsOnOptions(t *testing.T) {
	t.Setenv("HOROVOD_AUTOTUNE", "")
	const idle = "--autotune-...: nothing is searched for without --autotune"
	for args, want := range map[string]string{
		"--log-hide-timestamp": "--log-hide-timestamp is an old name: use " +
			"--log-without-timestamp",
		"--no-log-hide-timestamp": "--no-log-hide-timestamp is an old name: use " +
			"--log-with-timestamp",
		"--network-interface lo,lo": "--network-interface lo,lo: a list of names is for " +
			"--network-interfaces",
		"--network-interface lo --network-interfaces lo": "",
		"--autotune-log-file f":                          idle,
		"--autotune-steps-per-sample 3":                  idle,
		"--autotune --autotune-log-file f":               "",
		"--no-autotune --autotune-log-file f":            "",
		"--min-np 1 --slots-per-host 2": "--slots-per-host: the hosts of this job say how many " +
			"slots they have; the option is for those of --host-discovery-script",
		"--host-discovery-script ./d --slots-per-host 2": "",
		"--log-without-timestamp x --log-hide-timestamp": "",
		"-x HOROVOD_LOG_LEVEL=info --stall-check --tcp x": "--tcp: all processes run on this host and use its shared " +
			"memory; GOROVOD_TRANSPORT=tcp makes them use TCP",
	} {
		f, err := Parse("horovodrun", strings.Fields("-np 2 "+args+" x"))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		if got := strings.Join(append(f.Warnings, f.Notes(false)...), "; "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	t.Setenv("HOROVOD_AUTOTUNE", "1")
	if f, err := Parse("horovodrun", strings.Fields("-np 2 --autotune-log-file f x")); err != nil ||
		len(f.Notes(false)) > 0 {
		t.Errorf("the environment switches it on: %v, %v", f.Notes(false), err)
	}
}
