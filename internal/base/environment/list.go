package environment

import (
	"os"
	"strings"
)

// Get is the value of a variable in env or, if env lacks it, in this process's own environment.
func Get(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value
		}
	}
	return os.Getenv(name)
}

// Set returns env with name set to value, once.
func Set(env []string, name, value string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			kept = append(kept, e)
		}
	}
	return append(kept, name+"="+value)
}

// Overlay returns base with the variables of env, which replace those of base.
func Overlay(base, env []string) []string {
	given := map[string]bool{}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		given[name] = true
	}
	var all []string
	for _, e := range base {
		if name, _, _ := strings.Cut(e, "="); !given[name] {
			all = append(all, e)
		}
	}
	return append(all, env...)
}
