package cabi

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shim/python declares CPython's stable ABI itself. Where Python's headers are installed, they must say the same: of
// types, of functions, and that all functions have been in the ABI since 3.10.
func TestPythonHeaders(t *testing.T) {
	out, err := exec.Command("python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))").Output()
	include := strings.TrimSpace(string(out))
	if _, missing := os.Stat(filepath.Join(include, "Python.h")); err != nil || missing != nil {
		t.Skip("Python's headers are not installed")
	}
	dir := t.TempDir()
	compile := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cc := exec.Command("gcc", "-std=gnu11", "-Wall", "-Werror", "-DPy_LIMITED_API=0x030a0000", "-I"+include,
			"-I../../shim/python", "-fsyntax-only", file)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	const layout = `
_Static_assert(sizeof(PyObject) == 16 && offsetof(PyObject, ob_type) == 8, "PyObject");
_Static_assert(sizeof(PyMethodDef) == 32 && offsetof(PyMethodDef, ml_flags) == 16, "PyMethodDef");
_Static_assert(sizeof(PyModuleDef) == 104 && offsetof(PyModuleDef, m_methods) == 64, "PyModuleDef");
_Static_assert(METH_VARARGS == 1 && METH_O == 8 && METH_FASTCALL == 128, "METH");
`
	compile("ours.c", "#include \"abi.h\"\n"+layout)
	compile("both.c", "#include <Python.h>\n#include \"abi.h\"\n"+layout)

	library, err := elf.Open(built(t, "libgorovod_python.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	symbols, err := library.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var used strings.Builder
	for _, symbol := range symbols {
		if regexp.MustCompile(`^_?Py`).MatchString(symbol.Name) {
			fmt.Fprintf(&used, "  (void)&%s;\n", symbol.Name)
		}
	}
	if used.Len() == 0 {
		t.Error("the library uses nothing of Python's")
	}
	compile("used.c", "#include <Python.h>\nvoid use(void) {\n"+used.String()+"}\n")
}

// The extension exports its init function alone.
func TestPythonExports(t *testing.T) {
	library, err := elf.Open(built(t, "libgorovod_python.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF {
			exported = append(exported, symbol.Name)
		}
	}
	if !slices.Equal(exported, []string{"PyInit__calls"}) {
		t.Errorf("exported: %v", exported)
	}
}
