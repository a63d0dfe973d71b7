//go:build cgo && linux

package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
	standin "github.com/gorovod/gorovod/test/gpu"
)

// A process can load each library only once, so each case is a process: this program, started anew.
const asked = "GPU_TEST_ASKS"

func TestMain(m *testing.M) {
	switch os.Getenv(asked) {
	case "nccl":
		if l, err := nccl.Open(); err != nil {
			fmt.Println("error:", err)
		} else {
			id, err := l.NewUniqueID()
			fmt.Println(l.Version(), l.CUDA(), l.CanSplit(), l.CanShrink(), l.Has(nccl.Float8E4M3), l.Path(),
				id != nccl.UniqueID{}, err)
		}
	case "cuda":
		if d, err := cuda.Open(); err != nil {
			fmt.Println("error:", err)
		} else {
			fmt.Println(d.Version(), d.Count(), d.Path())
		}
	case "late":
		for range 2 {
			if v := NCCLVersion(config.GPUAuto, 3*time.Second); v != 0 {
				fmt.Println("version", v)
			}
		}
		if _, known := AwaitNCCLVersion(config.GPUAuto, time.Hour, time.Millisecond); known {
			fmt.Println("it is known")
		}
	case "built":
		const limit = time.Minute
		wish := config.GPU(cmp.Or(os.Getenv("GOROVOD_GPU"), "auto"))
		fmt.Println(NCCLVersion(wish, limit), UsableNCCL(wish, limit), NCCLVersion(wish, limit))
	case "report":
		ReportCUDA(os.Stdout)
		ReportNCCL(os.Stdout, config.GPU(cmp.Or(os.Getenv("GOROVOD_GPU"), "auto")))
	case "":
		os.Exit(m.Run())
	default:
		runProgram(os.Getenv(asked))
	}
}

// ask starts this program with a question and further variables, and returns its answer.
func ask(t *testing.T, question string, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), asked+"="+question), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", question, err, out)
	}
	return strings.TrimSpace(string(out))
}

// build makes a shared library of C, in a folder of its own.
func build(t *testing.T, name, source string) (folder string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	return buildAt(t, cc, t.TempDir(), name, source)
}

func buildAt(t *testing.T, cc, folder, name, source string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "source.c")
	if err := os.WriteFile(file, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cc, "-shared", "-fPIC", "-Wl,-soname,"+name, "-o", filepath.Join(folder, name), file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return folder
}

// aNCCL returns the source of a library with a version and all functions that are needed, except one. They do nothing.
func aNCCL(version int, cudaBuild, without string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "const char text[] = \"NCCL version %s+cuda%s\";\n", nccl.VersionText(version), cudaBuild)
	fmt.Fprintf(&b, "int ncclGetVersion(int *v) { *v = %d; return 0; }\n", version)
	fmt.Fprintf(&b, "int ncclGetUniqueId(char *id) { id[0] = 1; return 0; }\n")
	for _, name := range strings.Fields(`CommInitRankConfig CommFinalize CommDestroy CommAbort CommGetAsyncError GetErrorString
		GetLastError RedOpCreatePreMulSum RedOpDestroy GroupStart GroupEnd AllReduce Broadcast Reduce AllGather ReduceScatter
		Send Recv CommSplit CommShrink`) {
		if name != without {
			fmt.Fprintf(&b, "int nccl%s(void) { return 3; }\n", name)
		}
	}
	return b.String()
}

const libnccl = "libnccl.so.2"

func expect(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s\n\tdoes not contain %q", got, w)
		}
	}
}

func TestUnfitNCCL(t *testing.T) {
	old := build(t, libnccl, aNCCL(21304, "11.7", "CommInitRankConfig"))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+old), "error:", old, "is version 2.13.4: gorovod needs 2.14.0 or newer")
	ancient := build(t, libnccl, aNCCL(2708, "10.2", "CommFinalize"))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+ancient), "is version 2.7.8: gorovod needs 2.14.0 or newer")
	next := build(t, libnccl, aNCCL(30000, "14.0", ""))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+next), "is version 3.0.0: gorovod needs 2.14.0 or newer, of NCCL 2")
	lacking := build(t, libnccl, aNCCL(22005, "12.4", "AllReduce"))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+lacking), "error:", lacking,
		"has no function ncclAllReduce", "install NCCL")
	failing := strings.NewReplacer("{ *v = 22005; return 0; }", "{ *v = 22005; return 3; }",
		"int ncclGetErrorString(void) { return 3; }", `const char *ncclGetErrorString(int code) { return "an error"; }`,
		"int ncclGetLastError(void) { return 3; }", "void *ncclGetLastError(void *comm) { return 0; }").
		Replace(aNCCL(22005, "12.4", ""))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+build(t, libnccl, failing)),
		"does not tell its version (ncclGetVersion: NCCL: an error (3)): install its package again")
	other := build(t, libnccl, "int x;")
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+other), "error:", "has no function ncclGetVersion",
		"is damaged or no NCCL")

	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, libnccl), []byte("\x7fELF, once"), 0o777); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+broken), "error:", "is damaged (it is no whole library: EOF)", broken)
}

func TestNoNCCL(t *testing.T) {
	got := ask(t, "nccl")
	if !strings.HasPrefix(got, "error:") {
		t.Skip("this machine has NCCL: ", got)
	}
	expect(t, got, "libnccl.so.2 cannot be loaded", "install PyTorch for CUDA, or the package nvidia-nccl-cu12")
}

func TestFitNCCL(t *testing.T) {
	first := build(t, libnccl, aNCCL(21403, "11.7", "CommSplit"))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+first), "21403 11 false false false "+first, "true <nil>")
	late := build(t, libnccl, aNCCL(22707, "12.9", ""))
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+late), "22707 12 true true true "+late)
}

// The NCCL that the program has loaded is taken, even if another one would be found. If the loaded one is unfit, no
// other is loaded.
func TestLoadedNCCLComesFirst(t *testing.T) {
	programs := build(t, libnccl, aNCCL(22005, "12.4", ""))
	elsewhere := build(t, libnccl, aNCCL(22304, "12.4", ""))
	preload := "LD_PRELOAD=" + filepath.Join(programs, libnccl)
	expect(t, ask(t, "nccl", preload, "LD_LIBRARY_PATH="+elsewhere), "22005 12", programs)

	old := "LD_PRELOAD=" + filepath.Join(build(t, libnccl, aNCCL(21005, "12.4", "")), libnccl)
	expect(t, ask(t, "nccl", old, "LD_LIBRARY_PATH="+elsewhere), "error:", "is version 2.10.5")
}

// NCCL's Python package is found beside any other package from which the process has loaded a library.
func TestNCCLOfAPythonPackage(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	site := filepath.Join(t.TempDir(), "an environment", "site-packages")
	lib := filepath.Join(site, "jaxlib")
	buildAt(t, cc, lib, "libjax.so", "int x;")
	preload := "LD_PRELOAD=" + link(t, filepath.Join(lib, "libjax.so"))
	wheel := buildAt(t, cc, filepath.Join(site, "nvidia/nccl/lib"), libnccl, aNCCL(22304, "12.4", ""))
	expect(t, ask(t, "nccl", preload), "22304 12", wheel)

	// a broken library does not hide the next one
	if err := os.WriteFile(filepath.Join(wheel, libnccl), nil, 0o777); err != nil {
		t.Fatal(err)
	}
	next := build(t, libnccl, aNCCL(22005, "12.4", ""))
	expect(t, ask(t, "nccl", preload, "LD_LIBRARY_PATH="+next), "22005 12", next)
	expect(t, ask(t, "nccl", preload), "error:", "install its package again", wheel)

	// neither does an unfit one, although both have the same soname
	buildAt(t, cc, wheel, libnccl, aNCCL(21003, "12.4", ""))
	expect(t, ask(t, "nccl", preload, "LD_LIBRARY_PATH="+next), "22005 12", next)
	expect(t, ask(t, "nccl", preload), "error:", "is version 2.10.3: gorovod needs", wheel)

	// nor one that the driver cannot run, that was cut short, or that is no file
	driver := build(t, libcuda, aDriver(t, 12080, 1, 0, ""))
	buildAt(t, cc, wheel, libnccl, aNCCL(22707, "13.0", ""))
	expect(t, ask(t, "report", preload, "LD_LIBRARY_PATH="+next+":"+driver), "NCCL: "+next, "Tensors of GPUs: by NCCL")
	expect(t, ask(t, "built", preload, "LD_LIBRARY_PATH="+next+":"+driver), "22005 22005 22005")
	file := filepath.Join(wheel, libnccl)
	if err := os.Truncate(file, 3000); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "nccl", preload, "LD_LIBRARY_PATH="+next), "22005 12", next)
	expect(t, ask(t, "nccl", preload), "error:", "is damaged (it is no whole library: ", wheel)
	if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "nccl", preload, "LD_LIBRARY_PATH="+next), "22005 12", next)
	expect(t, ask(t, "nccl", preload), "error:", file+" is damaged (it is no file, but a folder or a pipe)")
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "report", preload), "\nWRONG: NCCL's library "+file+" is damaged (it is no file, ")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}

	// the working directory does not count
	buildAt(t, cc, wheel, libnccl+".old", aNCCL(21003, "12.4", ""))
	if err := os.Rename(file+".old", file); err != nil {
		t.Fatal(err)
	}
	t.Chdir(wheel)
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+next), "22005 12", next)
}

// link makes a link whose path has no blank, because LD_PRELOAD takes a blank for the end of a name.
func link(t *testing.T, file string) string {
	t.Helper()
	short := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.Symlink(file, short); err != nil {
		t.Fatal(err)
	}
	return short
}

func TestNCCLOfAnotherCUDA(t *testing.T) {
	framework := "LD_PRELOAD=" + filepath.Join(build(t, "libcudart.so.12", "int x;"), "libcudart.so.12")
	of13 := build(t, libnccl, aNCCL(22707, "13.0", ""))
	expect(t, ask(t, "nccl", framework, "LD_LIBRARY_PATH="+of13), "error:", of13,
		"is built for CUDA 13, and this process uses CUDA 12: install the package nvidia-nccl-cu12")
	of12 := build(t, libnccl, aNCCL(22707, "12.9", ""))
	expect(t, ask(t, "nccl", framework, "LD_LIBRARY_PATH="+of12), "22707 12")
}

// PyTorch may have NCCL linked into it. Then no second NCCL is loaded.
func TestNCCLInsidePyTorch(t *testing.T) {
	const torch = "libtorch_cuda.so"
	elsewhere := "LD_LIBRARY_PATH=" + build(t, libnccl, aNCCL(22304, "12.4", ""))
	open := build(t, torch, aNCCL(22005, "12.4", ""))
	expect(t, ask(t, "nccl", "LD_PRELOAD="+filepath.Join(open, torch), elsewhere), "22005 0", open)
	closed := build(t, torch, "int x;")
	expect(t, ask(t, "nccl", "LD_PRELOAD="+filepath.Join(closed, torch), elsewhere), "error:", closed,
		"has its NCCL inside", "a process must not have two")
}

// aDriver returns the source of a driver with a version, devices, and all functions that are needed, except one.
func aDriver(t *testing.T, version, devices, init int, without string) string {
	header, err := os.ReadFile("../cuda/driver.h")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "int cuInit(unsigned int flags) { return %d; }\n", init)
	fmt.Fprintf(&b, "int cuDriverGetVersion(int *v) { *v = %d; return 0; }\n", version)
	fmt.Fprintf(&b, "int cuDeviceGetCount(int *n) { *n = %d; return 0; }\n", devices)
	b.WriteString("int cuGetErrorName(int code, const char **text) { *text = \"CUDA_ERROR_X\"; return 0; }\n")
	b.WriteString("int cuGetErrorString(int code, const char **text) { *text = \"an error\"; return 0; }\n")
	for line := range strings.Lines(string(header)) {
		name, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "X("), ",")
		if ok && strings.HasPrefix(name, "cu") && name != without && !strings.Contains(b.String(), name+"(") {
			fmt.Fprintf(&b, "int %s(void) { return 801; }\n", name)
		}
	}
	return b.String()
}

const libcuda = "libcuda.so.1"

func TestUnfitDriver(t *testing.T) {
	fit := build(t, libcuda, aDriver(t, 12080, 2, 0, ""))
	expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+fit), "12080 2 "+fit)
	none := build(t, libcuda, aDriver(t, 12080, 0, 100, ""))
	expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+none), "error:", none,
		"sees no device: check nvidia-smi and CUDA_VISIBLE_DEVICES")
	for code, advice := range map[int]string{803: "the kernel has another version of the driver",
		999: "load the kernel's module", 5: "check whether nvidia-smi works"} {
		failing := build(t, libcuda, aDriver(t, 12080, 2, code, ""))
		expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+failing),
			fmt.Sprintf("does not start: cuInit: an error (CUDA_ERROR_X, %d): %s", code, advice))
	}
	for function, body := range map[string]string{"cuDriverGetVersion": "*v = 12080;", "cuDeviceGetCount": "*n = 2;"} {
		failing := strings.Replace(aDriver(t, 12080, 2, 0, ""), body+" return 0;", "return 5;", 1)
		expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+build(t, libcuda, failing)),
			"does not start: "+function+": an error (CUDA_ERROR_X, 5)")
	}
	expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+build(t, libcuda, aDriver(t, -1, 2, 0, ""))), "is for CUDA -1: gorovod")
	expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+build(t, libcuda, aDriver(t, 12080, -3, 0, ""))),
		"sees -3 devices, so it is damaged")
	silent := strings.NewReplacer(`*text = "an error"`, "*text = 0").Replace(aDriver(t, 12080, 2, 803, ""))
	expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+build(t, libcuda, silent)), "start: cuInit: CUDA_ERROR_X (803)")
	old := build(t, libcuda, aDriver(t, 11020, 2, 0, "cuDeviceGetUuid_v2"))
	expect(t, ask(t, "cuda", "LD_LIBRARY_PATH="+old), "has no function cuDeviceGetUuid_v2", "CUDA 11.4 or newer")
}

func TestNoDriver(t *testing.T) {
	got := ask(t, "cuda")
	if !strings.HasPrefix(got, "error: CUDA's driver libcuda.so.1 cannot be loaded") {
		t.Skip("this machine has a driver: ", got)
	}
	expect(t, got, "install NVIDIA's driver, or give the container access")
}

// NCCL is not built for a process that does not want it, nor usable without devices, which are known once CUDA starts.
func TestNCCLVersion(t *testing.T) {
	of12, of13 := build(t, libnccl, aNCCL(21805, "12.0", "")), build(t, libnccl, aNCCL(21805, "13.0", ""))
	one, none := build(t, libcuda, aDriver(t, 12080, 1, 0, "")), build(t, libcuda, aDriver(t, 12080, 0, 100, ""))
	for _, c := range []struct{ nccl, driver, wish, want string }{
		{of12, one, "auto", "21805 21805 21805"}, {of12, one, "nccl", "21805 21805 21805"},
		{of12, one, "staged", "0 0 0"}, {of12, one, "off", "0 0 0"},
		{of12, none, "auto", "21805 0 21805"}, {of13, one, "auto", "0 0 0"},
	} {
		got := ask(t, "built", "LD_LIBRARY_PATH="+c.nccl+":"+c.driver, "GOROVOD_GPU="+c.wish)
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A library that hangs is named, and whoever asks again does not wait again.
func TestNCCLVersionIsLate(t *testing.T) {
	driver := build(t, libcuda, aDriver(t, 12080, 1, 0, ""))
	hangs := build(t, libnccl, "#include <unistd.h>\nint ncclGetVersion(int *v) { for (;;) pause(); }\n"+
		strings.Replace(aNCCL(21805, "12.0", ""), "ncclGetVersion", "another", 1))
	got := ask(t, "late", "LD_LIBRARY_PATH="+hangs+":"+driver)
	expect(t, got, "ncclGetVersion of "+hangs+"/libnccl.so.2 has not returned for 3s")
	if strings.Count(got, "has not returned") != 1 || strings.Contains(got, "version") ||
		strings.Contains(got, "known") {
		t.Error(got)
	}
}

// The dynamic loader would end the process on a file that was cut short.
func TestLibrariesOfTheLoadersPath(t *testing.T) {
	whole := build(t, libnccl, aNCCL(21805, "12.0", ""))
	content, err := os.ReadFile(filepath.Join(whole, "libnccl.so.2"))
	if err != nil {
		t.Fatal(err)
	}
	short := t.TempDir()
	if err := os.WriteFile(filepath.Join(short, "libnccl.so.2"), content[:3000], 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+short), "error: NCCL's library "+short+"/libnccl.so.2 is damaged",
		"it is no whole library")
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+short+":"+whole), "21805", whole)
	file := filepath.Join(short, "libnccl.so.2")
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+short), "error: NCCL's library "+file+" is damaged (it is no file, but")
	expect(t, ask(t, "nccl", "LD_LIBRARY_PATH="+short+":"+whole), "21805", whole)
}

// What is wrong with a device names the call that has failed.
func TestDeviceThatCannotBeRead(t *testing.T) {
	libraries := t.TempDir()
	if err := standin.Build("../../../test/gpu/standin", libraries); err != nil {
		t.Fatal(err)
	}
	for _, function := range []string{"cuDeviceGetName", "cuDeviceTotalMem_v2"} {
		expect(t, ask(t, "report", "LD_LIBRARY_PATH="+libraries, "STANDIN_FAULTS="+function+":1:1"),
			"\nWRONG: device 0 of 8: "+strings.TrimSuffix(function, "_v2")+": ", "device 1: ")
	}
}

func TestReport(t *testing.T) {
	if !strings.HasPrefix(ask(t, "cuda"), "error:") {
		t.Skip("this machine has a driver")
	}
	library := build(t, libnccl, aNCCL(21805, "13.0", ""))
	expect(t, ask(t, "report", "LD_LIBRARY_PATH="+library), "CUDA's driver: none", "NCCL: "+library,
		"2.18.5, built for CUDA 13, without fp8 (2.24) and communicators that shrink (2.27)",
		"Tensors of GPUs: copied through host memory, because\n  CUDA's driver libcuda.so.1 cannot be loaded")

	driver := build(t, libcuda, aDriver(t, 12080, 1, 0, ""))
	expect(t, ask(t, "report", "LD_LIBRARY_PATH="+library+":"+driver), "for CUDA up to 12.8",
		"is built for CUDA 13, and the driver "+driver, "runs CUDA 12.8 at most: update the driver, or install")
	both := "LD_LIBRARY_PATH=" + build(t, libnccl, aNCCL(21805, "12.0", "")) + ":" + driver
	for wish, says := range map[string]string{
		"auto": "by NCCL, unless GOROVOD_GPU says", "nccl": "by NCCL, unless GOROVOD_GPU says",
		"staged": "copied through host memory, because GOROVOD_GPU=staged asks for that",
		"off":    "refused, because GOROVOD_GPU=off asks for that",
	} {
		expect(t, ask(t, "report", both, "GOROVOD_GPU="+wish), "Tensors of GPUs: "+says)
	}
	expect(t, ask(t, "report", "LD_LIBRARY_PATH="+library, "GOROVOD_GPU=nccl"),
		"Tensors of GPUs: operations on them fail with GOROVOD_GPU=nccl, because\n  CUDA's driver libcuda.so.1 cannot")
	many := build(t, libcuda, aDriver(t, 12080, 1<<31-1, 0, ""))
	expect(t, ask(t, "report", "LD_LIBRARY_PATH="+many), "device 63 of ", "and 2147483583 more devices")
}

// What should not be begins with WRONG, and a library that is there is named where it fails.
func TestWhatIsWrong(t *testing.T) {
	if !strings.HasPrefix(ask(t, "cuda"), "error:") || !strings.HasPrefix(ask(t, "nccl"), "error:") {
		t.Skip("this machine has a driver or NCCL")
	}
	empty := func(name string) string {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	fit, of13 := build(t, libnccl, aNCCL(22707, "12.0", "")), build(t, libnccl, aNCCL(22707, "13.0", ""))
	driver := build(t, libcuda, aDriver(t, 12080, 1, 0, "")) // whose device cannot be read
	failing, old := build(t, libcuda, aDriver(t, 12080, 1, 999, "")), build(t, libcuda, aDriver(t, 11020, 1, 0, ""))
	noDriver, noNCCL, needs := empty(libcuda), empty(libnccl), t.TempDir()
	cmd := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(needs, libnccl), filepath.Join(fit, "source.c"),
		"-Wl,--no-as-needed", filepath.Join(driver, libcuda))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		path  string
		wrong int
		says  string
	}{
		{"", 0, "CUDA's driver: none\n"},
		{"", 0, "NCCL: none\n"},
		{driver + ":" + fit, 1, driver + "/libcuda.so.1, for CUDA up to 12.8\nWRONG: device 0 of 1: "},
		{driver + ":" + of13, 2, "\nWRONG: NCCL's library " + of13 + "/libnccl.so.2 (2.27.7) is built for CUDA 13"},
		{failing, 1, failing + "/libcuda.so.1, for CUDA up to 12.8, which fails\nWRONG: CUDA's driver " + failing},
		{old, 1, old + "/libcuda.so.1, for CUDA up to 11.2, which fails\nWRONG: CUDA's driver " + old},
		{noDriver, 1, "CUDA's driver: none that can be loaded\nWRONG: CUDA's driver libcuda.so.1 cannot be loaded ("},
		{noDriver, 1, "): install NVIDIA's driver again\n"},
		{noNCCL, 1, "NCCL: none that can be used\nWRONG: NCCL's library "},
		{noDriver + ":" + needs, 2, "cannot be loaded, because it needs CUDA's driver ("},
	} {
		got := ask(t, "report", "LD_LIBRARY_PATH="+c.path)
		expect(t, got, c.says, "Tensors of GPUs: ")
		if strings.Count(got, "WRONG: ") != c.wrong {
			t.Errorf("%s: not %d findings\n%s", c.path, c.wrong, got)
		}
	}
}
