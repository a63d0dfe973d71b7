package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Check says what is wrong with the value of a variable that horovodrun or Python reads; nil if it is valid. An empty
// value counts as not set.
func Check(name, value string) error {
	i := slices.IndexFunc(Knobs, func(k Knob) bool { return k.Name == name })
	if i < 0 || Knobs[i].check == nil || value == "" {
		return nil
	}
	if err := Knobs[i].check(value); err != nil {
		return fmt.Errorf("%s=%s: %w", name, printable(value), err)
	}
	return nil
}

// Elsewhere runs Check on all such variables of an environment. The error has one line for each invalid variable.
func Elsewhere(lookup func(name string) (string, bool)) error {
	var all []error
	for i := range Knobs {
		if value, ok := lookup(Knobs[i].Name); ok {
			all = append(all, Check(Knobs[i].Name, value))
		}
	}
	return errors.Join(all...)
}

// checkSeconds accepts a whole number of seconds.
func checkSeconds(most int) func(string) error {
	return func(v string) error {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > most {
			return fmt.Errorf("a whole number of seconds from 1 to %d is needed", most)
		}
		return nil
	}
}

// checkChoice accepts one of a few words.
func checkChoice(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			last := len(words) - 1
			return fmt.Errorf("%s or %s is needed", strings.Join(words[:last], ", "), words[last])
		}
		return nil
	}
}

// patches are the names of gorovod's changes to Python and frameworks. python/horovod/common/_patches.py makes these
// changes; a test compares the names.
var patches = []string{"excepthook", "torch-env-rendezvous", "torch-futures", "torch-compile-skip",
	"torch-grad-scaler", "torch-grad-scaler-shares", "tensorflow-any-order", "keras-loss-scale", "keras-no-xla",
	"keras-saved-name"}

func checkPatches(v string) error {
	var unknown []string
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name != "" && name != "all" && !slices.Contains(patches, name) {
			unknown = append(unknown, printable(name))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("there is no %s; the patches are %s, or all", strings.Join(unknown, ", "),
		strings.Join(patches, ", "))
}
