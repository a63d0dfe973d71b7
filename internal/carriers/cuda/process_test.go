package cuda

import (
	"reflect"
	"testing"
)

const aProcess = `00400000-00401000 r-xp 00000000 08:01 1 /usr/bin/python3.11
7f00-7f01 r--p 00000000 08:01 2    /opt/my env/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12
7f01-7f02 r-xp 00001000 08:01 2    /opt/my env/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12
7f02-7f03 rw-p 00000000 00:00 0
7f03-7f04 rw-p 00000000 00:00 0 [heap]
7f04-7f05 r-xp 00000000 08:01 3    /tmp/libold.so (deleted)
`

func TestMappedFiles(t *testing.T) {
	want := []string{"/usr/bin/python3.11",
		"/opt/my env/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12", "/tmp/libold.so"}
	got := mappedFiles(aProcess)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if major := RuntimeMajor(got); major != 12 {
		t.Errorf("the runtime is of CUDA %d", major)
	}
	if major := RuntimeMajor(want[:1]); major != 0 {
		t.Errorf("a process without a runtime has that of CUDA %d", major)
	}
}
