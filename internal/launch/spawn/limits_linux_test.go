package spawn

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// More hosts than this host has descriptors for are refused before anything starts.
func TestRemotesHaveLimits(t *testing.T) {
	if err := CheckRemotes(1, 1); err != nil {
		t.Error(err)
	}
	var files syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
	n := int(files.Cur/ofHost.descriptors) + 1
	if err := CheckRemotes(n, n); err == nil || !strings.HasPrefix(err.Error(),
		fmt.Sprintf("%d hosts: this host's limit on ", n)) {
		t.Error(err)
	}
	if err := CheckRemotes(1, int(files.Cur)); err == nil || !strings.Contains(err.Error(),
		"enough for about 0 hosts") {
		t.Errorf("with as many ranks as descriptors: %v", err)
	}
}
