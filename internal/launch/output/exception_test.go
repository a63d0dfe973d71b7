package output

import "testing"

func TestPythonException(t *testing.T) {
	const stack = "Traceback (most recent call last):\n  File \"/t/a.py\", line 2, in <module>\n    f(3)\n    ^^^^\n"
	for name, c := range map[string][2]string{
		"nothing":   {"", ""},
		"no stack":  {"ValueError: printed by hand", ""},
		"exception": {stack + "ValueError: no", "ValueError: no"},
		"its message goes on, and then there is a warning": {stack + "pkg.sub.Error: no\nsecond line\nwarning: x",
			"pkg.sub.Error: no"},
		"syntax": {"  File \"/t/a b.py\", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax",
			"SyntaxError: invalid syntax in /t/a b.py:3"},
		"syntax of an imported file": {stack + "  File \"/t/b.py\", line 7\n    x = = 1\n        ^\nSyntaxError: " +
			"invalid syntax", "SyntaxError: invalid syntax in /t/b.py:7"},
		"chain": {stack + "KeyError: 1\nDuring handling of the above exception, another exception occurred:\n" + stack +
			"ModuleNotFoundError: No module named 'torch'", "ModuleNotFoundError: No module named 'torch'"},
		"in another process": {stack + "ValueError: Caught ValueError in DataLoader worker process 0.\n" +
			"Original " + stack + "ValueError: sample 5 is broken", "ValueError: sample 5 is broken"},
		"without a message": {stack + "KeyboardInterrupt", "KeyboardInterrupt"},
		"the head is gone":  {"    f(3)\n  File \"/t/a.py\", line 9, in f\nValueError: no", "ValueError: no"},
		"faulthandler": {"Fatal Python error: Aborted\n  File \"/t/a.py\", line 9 in f\n" +
			"Extension modules: numpy", ""},
		"cut": {stack, ""},
	} {
		if got := PythonException(c[0]); got != c[1] {
			t.Errorf("%s: %q, want %q", name, got, c[1])
		}
	}
}
