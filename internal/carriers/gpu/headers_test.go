//go:build cgo && linux

package gpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/carriers/nccl"
)

// nvidia is the folder into which `make test-nvidia` puts NVIDIA's packages, because their headers and libraries may
// not be passed on.
const nvidia = "../../../build/nvidia"

// packages lists NVIDIA's packages of NCCL, each with the folder of the CUDA headers that its own header needs.
var packages = []struct {
	folder, cuda  string
	version, made int // of NCCL, and the CUDA that it was built for
}{
	{"oldest", "cuda12/site-packages/nvidia/cuda_runtime/include", 21403, 11},
	{"cuda12", "cuda12/site-packages/nvidia/cuda_runtime/include", 23203, 12},
	{"cuda13", "cuda13/site-packages/nvidia/cu13/include", 23203, 13},
}

func site(t *testing.T, folder string) string {
	path, err := filepath.Abs(filepath.Join(nvidia, folder, "site-packages"))
	if err == nil {
		_, err = os.Stat(filepath.Join(path, "nvidia/nccl/include/nccl.h"))
	}
	if err != nil {
		t.Skip("NVIDIA's packages are not here; `make test-nvidia` gets them and runs this: ", err)
	}
	return path
}

// constants returns C source that compares Go's constants with those of the header.
func constants(withFloat8 bool) string {
	var b strings.Builder
	same := func(name string, value int32) { fmt.Fprintf(&b, "SAME(%s, %d);\n", name, value) }
	for name, t := range map[string]nccl.DType{
		"ncclInt8": nccl.Int8, "ncclUint8": nccl.Uint8, "ncclInt32": nccl.Int32, "ncclUint32": nccl.Uint32,
		"ncclInt64": nccl.Int64, "ncclUint64": nccl.Uint64, "ncclFloat16": nccl.Float16, "ncclFloat32": nccl.Float32,
		"ncclFloat64": nccl.Float64, "ncclBfloat16": nccl.BFloat16, "ncclFloat8e4m3": nccl.Float8E4M3,
		"ncclFloat8e5m2": nccl.Float8E5M2,
	} {
		if withFloat8 || t < nccl.Float8E4M3 {
			same(name, int32(t))
		}
	}
	for name, op := range map[string]nccl.ReduceOp{
		"ncclSum": nccl.Sum, "ncclProd": nccl.Product, "ncclMax": nccl.Max, "ncclMin": nccl.Min,
		"ncclAvg": nccl.Average,
	} {
		same(name, int32(op))
	}
	for name, code := range map[string]nccl.Result{
		"ncclSuccess": nccl.Success, "ncclUnhandledCudaError": nccl.UnhandledCUDAError,
		"ncclSystemError":   nccl.SystemError,
		"ncclInternalError": nccl.InternalError, "ncclInvalidArgument": nccl.InvalidArgument,
		"ncclInvalidUsage": nccl.InvalidUsage, "ncclRemoteError": nccl.RemoteError, "ncclInProgress": nccl.InProgress,
	} {
		same(name, int32(code))
	}
	return b.String()
}

// compile makes the C compiler read NVIDIA's headers, ours, and the comparison of both.
func compile(t *testing.T, ncclHeaders, cudaHeaders, constants string) (string, error) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "constants.h"), []byte(constants), 0o666); err != nil {
		t.Fatal(err)
	}
	// The headers of half-precision types need further packages, and nothing here needs these types.
	out, err := exec.Command(cc, "-std=gnu11", "-fsyntax-only", "-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__",
		"-D__CUDA_BF16_TYPES_EXIST__", "-I", folder, "-I", filepath.Join(nvidia, cudaHeaders), "-I", ncclHeaders,
		"-I", filepath.Join(nvidia, "cuda13/site-packages/nvidia/cu13/include"), "testdata/check.c").CombinedOutput()
	return string(out), err
}

// Our declarations agree with NVIDIA's: functions, types, numbers, and the first fields of a configuration.
func TestHeaders(t *testing.T) {
	for _, p := range packages {
		t.Run(p.folder, func(t *testing.T) {
			headers := filepath.Join(site(t, p.folder), "nvidia/nccl/include")
			if out, err := compile(t, headers, p.cuda, constants(p.version >= 22400)); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			out, err := compile(t, headers, p.cuda, "SAME(ncclFloat32, 6);\n")
			if err == nil || !strings.Contains(out, "ncclFloat32 is not 6") {
				t.Errorf("a wrong number goes unnoticed: %v\n%s", err, out)
			}
		})
	}
}

// The real libraries load without CUDA, tell their versions, and have all functions that are needed.
func TestRealNCCL(t *testing.T) {
	for _, p := range packages {
		t.Run(p.folder, func(t *testing.T) {
			lib := filepath.Join(site(t, p.folder), "nvidia/nccl/lib")
			late := p.version >= 22700
			expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+lib),
				fmt.Sprintf("%d %d %t %t %t %s/libnccl.so.2 true <nil>", p.version, p.made, late, late, late, lib))
		})
	}
}

// A real NCCL for one CUDA is refused beside the real runtime of another. If the runtime is in a Python package, the
// NCCL of the packages beside it is taken.
func TestRealNCCLOfAnotherCUDA(t *testing.T) {
	of12, of13 := site(t, "cuda12"), filepath.Join(site(t, "cuda13"), "nvidia/nccl/lib")
	packaged := filepath.Join(of12, "nvidia/cuda_runtime/lib/libcudart.so.12")
	expect(t, ask(t, "nccl", "LD_PRELOAD="+packaged, "LD_LIBRARY_PATH="+of13), "23203 12", of12)

	content, err := os.ReadFile(packaged)
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "libcudart.so.12")
	if err := os.WriteFile(alone, content, 0o777); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "nccl", "LD_PRELOAD="+alone, "LD_LIBRARY_PATH="+of13), "error:",
		"is built for CUDA 13, and this process uses CUDA 12")
}
