package placement

import (
	"slices"
	"testing"
)

func TestExportable(t *testing.T) {
	got := Exportable([]string{"PATH=/bin", "BASH_FUNC_x%%=() {}", "OLDPWD=/", "CUDA_VISIBLE_DEVICES=0",
		"NO_CUDA_VISIBLE_DEVICES=1", "HOROVOD_SECRET_KEY=aa", "_HOROVOD_SECRET_KEY=bb", "HOROVOD_LOG_LEVEL=info",
		"EMPTY="})
	if want := []string{"PATH=/bin", "HOROVOD_LOG_LEVEL=info", "EMPTY="}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
